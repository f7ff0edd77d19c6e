"""What differential privacy a run really has, agent by agent. Pure mathematics: no files, no printing.

`releases`    what an agent releases: the base of every kind, and how a ledger keeps it
`dpp2_releases`, `baselines`   the kinds: DPP²'s and those of the other algorithms, each with its derivation
`accountant`  ε of a run, of each round and of publishing its result
`calibrate`   the decay, the noise scale or the number of rounds that keeps a budget, or why none does
`pld`         (ε, δ) by privacy-loss distributions; the trade-off curve that bounds every attack (extra [dp])
`ledger`      one agent's account over all its runs on the same data
`paper`       the paper's own figures, for comparison: they are not guarantees

Outside ε, whatever these modules say: telemetry, an M computed from private data, stopping rules that look at
data, x^K published without noise, any run whose noise can be known (seeded, or with its truth recorded), and noise in
doubles (`bits` = 0), whose low-order bits betray the sum (Mironov 2012). Noise on a grid is accounted for: `grid`.
"""

from dpp2.privacy.accountant import cumulative, epsilon, largest_rounds, per_round, publish_term
from dpp2.privacy.calibrate import Calibration, calibrate
from dpp2.privacy.dpp2_releases import MOST_ROUNDS, Dpp2Releases
from dpp2.privacy.epsilon_value import Curve, Epsilon, Unsupported, add_up
from dpp2.privacy.ledger import Allowance, Entry, Ledger
from dpp2.privacy.paper import (
    Corollary1Bounds,
    PaperDecay,
    PaperEpsilon,
    c_tilde,
    corollary_1_bounds,
    corollary_1_decay,
    theorem_3,
)
from dpp2.privacy.pld import PrivacyProfile, profile, release_sizes
from dpp2.privacy.releases import Releases

__all__ = [
    "MOST_ROUNDS",
    "Allowance",
    "Calibration",
    "Corollary1Bounds",
    "Curve",
    "Dpp2Releases",
    "Entry",
    "Epsilon",
    "Ledger",
    "PaperDecay",
    "PaperEpsilon",
    "PrivacyProfile",
    "Releases",
    "Unsupported",
    "add_up",
    "c_tilde",
    "calibrate",
    "corollary_1_bounds",
    "corollary_1_decay",
    "cumulative",
    "epsilon",
    "largest_rounds",
    "per_round",
    "profile",
    "publish_term",
    "release_sizes",
    "theorem_3",
]
