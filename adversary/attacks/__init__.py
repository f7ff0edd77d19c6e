"""The attacks, weakest first. A new one is a new file and one more entry in `ATTACKS`."""

from adversary.attacks.base import Attack, Estimate
from adversary.attacks.best_linear import BestLinear
from adversary.attacks.data import Data
from adversary.attacks.direct import Direct
from adversary.attacks.float_bits import FloatBits
from adversary.attacks.increments import Increments
from adversary.attacks.known_eta import KnownEta
from adversary.attacks.parameter_free import ParameterFree
from adversary.attacks.prior import Prior
from adversary.attacks.server import Server
from adversary.attacks.smoother import Smoother
from adversary.attacks.telescope import Telescope
from adversary.attacks.three_round import ThreeRound
from adversary.attacks.tracked import Tracked
from adversary.attacks.window import Window

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
