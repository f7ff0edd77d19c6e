"""The algorithms, as round programs. A new one is a new file and one more entry in `ALGORITHMS`.

| name | what it is | exact | noise | messages |
| --- | --- | --- | --- | --- |
| dpp2 | the paper's | yes | Laplace on both | y, z |
| dpp3 | ours: noise that cancels between neighbours | no | Gaussian or Laplace, own and per edge | v |
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
| decor | descent under noise that cancels between neighbours | no | Gaussian, own and per edge | x_half |
| file | yours: `@algorithm` in a Python file | | | |
Noise in brackets is off by default. eDP-TN, of which no equations were found, is left out.
"""

from dpp2.algorithms.base import AlgorithmSection
from dpp2.schema import Registry

ALGORITHMS: Registry[AlgorithmSection] = Registry(
    "dpp2.algorithms",
    {
        "dpp2": "dpp2:Dpp2Section",
        "dpp3": "dpp3:Dpp3Section",
        "dgd": "dgd:DgdSection",
        "extra": "extra:ExtraSection",
        "gradient-tracking": "gradient_tracking:GradientTrackingSection",
        "prox-gpda": "prox_gpda:ProxGpdaSection",
        "yi": "yi:YiSection",
        "diadsp": "diadsp:DiadspSection",
        "ppdc": "ppdc:PpdcSection",
        "pgtc": "pgtc:PgtcSection",
        "dmsp": "dmsp:DmspSection",
        "wang-nedic": "wang_nedic:WangNedicSection",
        "wang-basar": "wang_basar:WangBasarSection",
        "privsgp-vr": "privsgp_vr:PrivsgpVrSection",
        "diff2": "diff2:Diff2Section",
        "decor": "decor:DecorSection",
    },
    from_outside={"file": "userfile:FileSection"},
)
