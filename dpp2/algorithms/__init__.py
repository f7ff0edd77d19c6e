"""The algorithms, as round programs. A new one is a new file and one more entry in `ALGORITHMS`.

| name | what it is | exact | noise | messages |
| --- | --- | --- | --- | --- |
| dpp2 | the paper's | yes | Laplace on both | y, z |
| dgd | gradient descent over neighbours | no | (Laplace) | xa |
| extra | EXTRA | yes, without noise | (Laplace) | xa |
| gradient-tracking | DIGing | yes, without noise | (Laplace) | xa, ya |
| prox-gpda | primal–dual, proximal | yes | (Laplace) | xa |
| yi | primal–dual | yes | (Laplace) | xa |
| diadsp | gradient tracking with noise | no | Laplace on both | xa, ya |
| ppdc | yi with noise | with u_v = 0 | Laplace on x, v | xa |
| pgtc | diadsp, compressed | no | Laplace on both | cx, cy |
| dmsp | projected descent, shrinking steps | no | Laplace | y |
| wang-nedic | weakening coupling | in the long run | Laplace, need not decay | xa |
| wang-basar | the same under Gaussian noise | in the long run | Gaussian, does not decay | xa |
| privsgp-vr | SAGA, one sample a round | no | Gaussian | x_half |
| diff2 | server and clients, gradient differences | no | Gaussian | d, x_new |
Noise in brackets is off by default. eDP-TN, of which no equations were found, is left out.
"""

from dpp2.algorithms.base import AlgorithmSection
from dpp2.algorithms.dgd import DgdSection
from dpp2.algorithms.diadsp import DiadspSection
from dpp2.algorithms.diff2 import Diff2Section
from dpp2.algorithms.dmsp import DmspSection
from dpp2.algorithms.dpp2 import Dpp2Section
from dpp2.algorithms.extra import ExtraSection
from dpp2.algorithms.gradient_tracking import GradientTrackingSection
from dpp2.algorithms.pgtc import PgtcSection
from dpp2.algorithms.ppdc import PpdcSection
from dpp2.algorithms.privsgp_vr import PrivsgpVrSection
from dpp2.algorithms.prox_gpda import ProxGpdaSection
from dpp2.algorithms.wang_basar import WangBasarSection
from dpp2.algorithms.wang_nedic import WangNedicSection
from dpp2.algorithms.yi import YiSection

ALGORITHMS: tuple[type[AlgorithmSection], ...] = (
    Dpp2Section,
    DgdSection,
    ExtraSection,
    GradientTrackingSection,
    ProxGpdaSection,
    YiSection,
    DiadspSection,
    PpdcSection,
    PgtcSection,
    DmspSection,
    WangNedicSection,
    WangBasarSection,
    PrivsgpVrSection,
    Diff2Section,
)
