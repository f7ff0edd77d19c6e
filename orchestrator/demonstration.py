"""The experiment that containers are shipped with: the paper's algorithm on data that each agent brings along.

It has a budget, since whoever holds the orchestrator's certificate could ask for run after run. Noise that fades slowly
from a smaller scale makes 150 rounds do: the network converges, the attacks of the audit succeed, and ε stays below 10⁶
where the paper's own settings (500 rounds, r = 0.9) come to 10²³.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpp2 import Experiment
from dpp2.privacy import Epsilon
from dpp2.privacy.account import Account

RUNS = 4  # that a budget is made for: plain, with TLS, with damping, sniffed
DIMENSION = 10  # of the data that `make keys` draws; other data change what a round costs, not the budget
_OURS = {
    "run.seed": "os",
    "run.transport": "grpc",
    "run.rounds": 150,
    "problem.name": "file",
    "problem.path": "/run/secrets",
    "privacy.smoothness": 6,  # a bound that the data of `make keys` keep: they have M_i ≈ 4.5
}
_NOISE = {"noise.u_w": 0.2, "noise.u_e": 0.2, "noise.decay": 0.95}  # for the paper's algorithm; others have their own


@dataclass(frozen=True)
class Demonstration:
    """A resolved experiment, and what one run of it costs where that is a number."""

    experiment: Experiment
    epsilon: float | None

    @classmethod
    def of(cls, agents: int, topology: str, overrides: Sequence[str]) -> Demonstration:
        """With these overrides on top; a budget is set unless they name one."""
        chosen = any(one.split("=")[0].strip() == "algorithm.name" for one in overrides)
        ours = _OURS | ({} if chosen else _NOISE) | {"network.topology": topology, "network.agents": agents}
        written = [*(f"{name}={value}" for name, value in ours.items()), *overrides]
        experiment = Experiment.load(None, written).resolve()
        cost = _cost(experiment)
        if experiment.privacy.budget is None and cost is not None:
            privacy = experiment.privacy.updated(budget=_rounded_up(RUNS * cost))
            experiment = replace(experiment, privacy=privacy)
        return cls(experiment, cost)

    def to_toml(self) -> str:
        """The file, with its cost on top."""
        return self.remark() + self.experiment.to_toml()

    def remark(self) -> str:
        privacy, rounds = self.experiment.privacy, self.experiment.run.rounds
        if self.epsilon is None or privacy.budget is None:
            return "# The account knows no ε of such a run, so no budget can be kept.\n"
        epsilon = f"{self.epsilon:,.0f}" if self.epsilon < 1e9 else f"{self.epsilon:.3g}"
        cost = f"{rounds} rounds cost ε = {epsilon} where d = {DIMENSION} and M_i ≤ {privacy.smoothness:g}"
        enough = f"the budget is enough for {privacy.budget // self.epsilon:.0f} such runs on the same data"
        return f"# {cost}: {enough}.\n"


def _cost(experiment: Experiment) -> float | None:
    """ε of one run by the account; nobody's data are needed where a bound on every M_i is declared."""
    account = Account.of(experiment, np.full(experiment.network.agents, np.nan), DIMENSION)
    spent = account.epsilon(experiment.run.rounds)
    value = spent.value if isinstance(spent, Epsilon) else None  # none, too, where it is beyond floating point
    return value if value is not None and 0 < value < math.inf else None


def _rounded_up(value: float) -> float:
    """To two digits.

    >>> _rounded_up(725_036)
    730000.0
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit) * unit:.12g}")
