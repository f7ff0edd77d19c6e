"""Real data: scikit-learn's bundled sets, dealt to the agents, as a logistic problem with held-out accuracy.

    f_i(x) = (1/m_i) Σ_s log(1 + exp(−y_is xᵀz_is)) + Σ_t λω x_t²/(1 + ω x_t²)
A share `held_out` of the samples is set aside: it is public, and alike for everybody. Features are standardised
and get a last column of ones for the intercept. Mean and deviation are those of the part that `standardise` names:
    training    what the agents hold, which no ε covers (the default)
    held-out    the public part, where single records are to be protected (privacy.adjacency = "record")
The rest is dealt by `split`:
    iid         shuffled, in equal parts
    label       sorted by class, then cut into equal parts: most agents see one class or two
    dirichlet   each class in proportions drawn from Dirichlet(concentration): the smaller, the more lopsided
Everything is drawn from problem.seed, alike for every agent, and an agent keeps its own rows only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dpp2.arrays import Array
from dpp2.errors import BadInput
from dpp2.problems.base import LARGEST, SHARED, ProblemSection, agent_rng
from dpp2.problems.logistic import LogisticSection
from dpp2.problems.rows import Indices, RowLoss, logistic_rows

Classes = NDArray[np.int64]
Positive = Literal["odd", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


class ClassificationSection(ProblemSection):
    public_keys = ("name", "lambda", "omega")
    regulariser = ("lambda", "omega")

    name: Literal["classification"] = "classification"
    data: Literal["breast-cancer", "digits"] = Field("breast-cancer", description="breast-cancer or digits")
    positive: Positive | None = Field(
        None, description='"odd" or one digit from 0 to 9 (only with data = "digits"; default: odd)'
    )
    split: Literal["iid", "label", "dirichlet"] = Field("iid", description="iid, label or dirichlet")
    concentration: float | None = Field(
        None, ge=1e-3, description='a number ≥ 0.001 (only with split = "dirichlet"; default: 0.5)'
    )
    held_out: float = Field(0.2, ge=0, lt=1, description="a number ≥ 0 and < 1")
    standardise: Literal["training", "held-out"] | None = Field(
        None, description='training or held-out (default: training, with privacy.adjacency = "record" held-out)'
    )
    lambda_: float = Field(0.001, ge=0, le=LARGEST, alias="lambda", description="a number from 0 to 1e100")
    omega: float = Field(1.0, ge=0, le=LARGEST, description="a number from 0 to 1e100")

    def resolve(self, agents: int) -> Self:
        """Fill in the defaults that hang on another key, and refuse what that key leaves without meaning."""
        settled = self
        for key, depends, on, default in (
            ("positive", "data", "digits", "odd"),
            ("concentration", "split", "dirichlet", 0.5),
        ):
            value, applies = getattr(self, key), getattr(self, depends) == on
            if value is not None and not applies:
                raise BadInput(f"problem.{key}", value, f'nothing, unless problem.{depends} = "{on}"')
            if value is None and applies:
                settled = settled.updated(**{key: default})
        return settled

    def resolve_for_records(self, agents: int) -> Self:
        """No record of an agent may decide how the features of the others are standardised."""
        if self.standardise == "training":
            accepted = 'held-out, with privacy.adjacency = "record": the training part holds the records to protect'
            raise BadInput("problem.standardise", self.standardise, accepted)
        return self.updated(standardise="held-out").resolve(agents)

    def looked_at(self) -> str | None:
        if self.standardise == "held-out":
            return "the held-out records are public: features are standardised by them, and ε does not cover them"
        return "features are standardised by mean and deviation of all agents' data, which is outside ε"

    def data_identity(self, agent: int, agents: int, outside: bytes = b"") -> bytes:
        """How many agents there are decides what each one holds."""
        return super().data_identity(agent, agents, outside) + b" of %d" % agents

    def objective(self, owned: Sequence[int], agents: int) -> RowLoss:
        table = self._table()
        dealt = self._deal(table, agents)
        rows = [table.train[dealt[agent]] for agent in owned]
        features = [table.features[own] for own in rows]
        return logistic_rows(features, [table.labels[own] for own in rows], self.lambda_, self.omega)

    def surrogate(self, agents: int, smoothness: float) -> LogisticSection:
        return LogisticSection.with_signal(self.objective(range(agents), agents), smoothness, self.lambda_, self.omega)

    def report(self, x: Array) -> dict[str, float]:
        """Share of the held-out samples on the right side of x."""
        table = self._table()
        if not len(table.test):
            return {}
        return {"accuracy": table.accuracy(x), "accuracy_without_privacy": _without_privacy(self)}

    def _table(self) -> Table:
        features, classes = _load(self.data)
        order = agent_rng(self.drawing_seed(), SHARED, 0).permutation(len(features))
        test, train = np.split(order, [round(self.held_out * len(features))])
        if not len(train):
            raise BadInput("problem.held_out", self.held_out, "a share that leaves samples to train on")
        known = test if self.standardise == "held-out" else train
        if not len(known):
            raise BadInput("problem.held_out", self.held_out, "a share above 0, by which features are standardised")
        return Table(_standardised(features, known), self._labels(classes), classes, train, test)

    def _labels(self, classes: Classes) -> Array:
        if self.data == "breast-cancer":
            hit = classes == 0  # malignant
        elif self.positive is None or self.positive == "odd":
            hit = classes % 2 == 1
        else:
            hit = classes == self.positive
        return np.where(hit, 1.0, -1.0)

    def _deal(self, table: Table, agents: int) -> list[Indices]:
        """For each agent the places in table.train of its samples."""
        samples = len(table.train)
        if agents > samples:
            raise BadInput(
                "network.agents",
                agents,
                f"at most {samples}, the training samples of {self.data}: one per agent",
            )
        if self.split == "iid":  # `train` is shuffled already
            return np.array_split(np.arange(samples), agents)
        classes = table.classes[table.train]
        if self.split == "label":
            return np.array_split(np.argsort(classes, kind="stable"), agents)
        return deal_dirichlet(classes, agents, self.concentration or 0.5, agent_rng(self.drawing_seed(), SHARED, 1))


@dataclass(frozen=True, eq=False)
class Table:
    """A data set ready for use; `train` and `test` are row numbers, shuffled."""

    features: Array  # (samples, d), standardised, with the intercept
    labels: Array  # ±1
    classes: Classes  # as in the data set
    train: Indices
    test: Indices

    def accuracy(self, x: Array) -> float:
        """Share of the held-out samples on the right side of x."""
        margins = self.labels[self.test] * (self.features[self.test] @ x)
        return float((margins > 0).mean())


@lru_cache(maxsize=64)
def _without_privacy(section: ClassificationSection) -> float:
    """Held-out accuracy of somebody who is trusted with all records: scikit-learn's regression, with its defaults."""
    from sklearn.linear_model import LogisticRegression

    table = section._table()
    fitted = LogisticRegression(max_iter=1000).fit(table.features[table.train, :-1], table.labels[table.train])
    return table.accuracy(np.append(fitted.coef_[0], fitted.intercept_))


def deal_dirichlet(classes: Classes, agents: int, concentration: float, rng: np.random.Generator) -> list[Indices]:
    """Cut each class at Dirichlet proportions; then whoever got nothing takes one sample from the richest."""
    dealt: list[list[int]] = [[] for _ in range(agents)]
    for label in np.unique(classes):
        members = np.flatnonzero(classes == label)
        shares = rng.dirichlet(np.full(agents, concentration))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.intp)
        for own, part in zip(dealt, np.split(members, cuts), strict=True):
            own.extend(part.tolist())
    for own in dealt:
        if not own:
            own.append(max(dealt, key=len).pop())
    return [np.array(own, dtype=np.intp) for own in dealt]


def _standardised(features: Array, known: Indices) -> Array:
    """By mean and deviation of the known rows."""
    mean, deviation = features[known].mean(axis=0), features[known].std(axis=0)
    deviation[deviation == 0] = 1.0  # a pixel that is always blank stays 0
    ones = np.ones((len(features), 1))
    return np.hstack([(features - mean) / deviation, ones])


def _load(data: str) -> tuple[Array, Classes]:
    try:
        import sklearn  # noqa: F401 (whether it is there)
    except ImportError:
        accepted = "scikit-learn to be installed, with pip install 'dpp2[data]'"
        raise BadInput("problem.name", "classification", accepted) from None
    return _read(data)


@lru_cache(maxsize=2)
def _read(data: str) -> tuple[Array, Classes]:
    """Once in a process: scikit-learn parses text, which takes longer than a short run."""
    from sklearn import datasets

    load = datasets.load_digits if data == "digits" else datasets.load_breast_cancer
    features, classes = load(return_X_y=True)
    table, labels = np.asarray(features, dtype=np.float64), np.asarray(classes, dtype=np.int64)
    table.flags.writeable = labels.flags.writeable = False
    return table, labels
