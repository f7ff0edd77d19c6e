"""The attacks, weakest first. A new one is a new file and one more entry in `ATTACKS`."""

from dpp2.adversary.attacks.base import Attack, Estimate
from dpp2.adversary.attacks.best_linear import BestLinear
from dpp2.adversary.attacks.data import Data
from dpp2.adversary.attacks.direct import Direct
from dpp2.adversary.attacks.float_bits import FloatBits
from dpp2.adversary.attacks.increments import Increments
from dpp2.adversary.attacks.known_eta import KnownEta
from dpp2.adversary.attacks.parameter_free import ParameterFree
from dpp2.adversary.attacks.prior import Prior
from dpp2.adversary.attacks.server import Server
from dpp2.adversary.attacks.smoother import Smoother
from dpp2.adversary.attacks.telescope import Telescope
from dpp2.adversary.attacks.three_round import ThreeRound
from dpp2.adversary.attacks.tracked import Tracked
from dpp2.adversary.attacks.window import Window

ATTACKS: tuple[Attack, ...] = (
    Prior(),
    Direct(),
    Telescope(),
    KnownEta(),
    ThreeRound(),
    Window(),
    ParameterFree(),
    Smoother(),
    Increments(),
    Tracked(),
    Server(),
    BestLinear(),
    Data(),
    FloatBits(),
)

__all__ = ["ATTACKS", "Attack", "Estimate"]
