"""What the rows of `dpp2 reproduce tier3` are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpp2 import Experiment

DELTA, COLLUDERS = 1e-5, 1
DATA: Mapping[str, Mapping[str, object]] = {
    "paper": {},
    "planted": {"problem.labels": "planted"},
    "breast-cancer": {
        "problem.name": "classification",
        "problem.data": "breast-cancer",
        "network.topology": "ring",
        "network.agents": 10,
        "privacy.adjacency": "record",
        "privacy.clip": 1.0,
    },
}


@dataclass(frozen=True)
class Setting:
    """What a row is about."""

    data: str
    epsilon: float
    noise: str

    def experiment(self, seed: int, **more: object) -> Experiment:
        common = {"algorithm.name": "dpp3", "run.seed": seed, "noise.kind": self.noise, "privacy.budget": self.epsilon}
        account = {"privacy.delta": DELTA, "privacy.colluders": COLLUDERS}
        return Experiment.load(overrides={**common, **account, **DATA[self.data], **more})


SETTINGS = (
    *(
        Setting(data, eps, noise)
        for data in ("paper", "planted")
        for noise in ("gaussian", "laplace")
        for eps in (1, 10)
    ),
    Setting("breast-cancer", 1, "gaussian"),
)
