"""What a run produced, and what can be done with it: look, draw, tabulate, keep, attack."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dpp2.arrays import Array
from dpp2.experiment import Experiment
from dpp2.privacy import Epsilon, PaperEpsilon, Unsupported
from dpp2.records import Records
from dpp2.rooms import registered
from dpp2.stability import Divergence
from dpp2.theory import Condition

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class PrivacyReport:
    """What the run cost its worst-off agent, what the paper would say, and what makes either void."""

    epsilon: Epsilon | Unsupported
    paper_epsilon: PaperEpsilon | Unsupported
    stopped: str | None  # why the budget ended the run early
    notes: tuple[str, ...]


class Audited(Protocol):
    """What `Result.audit` returns: every attack that was run, those that were not, and the paper's claims, judged."""

    @property
    def findings(self) -> tuple[Any, ...]: ...

    @property
    def skipped(self) -> tuple[Any, ...]: ...

    @property
    def verdicts(self) -> tuple[Any, ...]: ...


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """What a run produced. `x` is x^K, one row per agent; records that were not asked for are empty."""

    experiment: Experiment
    run_id: str
    x: Array
    metrics: Records
    observation: Records
    truth: Records
    divergence: Divergence | None
    conditions: list[Condition]
    report: dict[str, float]
    privacy: PrivacyReport
    seconds: float

    @property
    def diverged(self) -> bool:
        return self.divergence is not None

    @property
    def rounds(self) -> int:
        """Rounds that were run: fewer than asked for when the run diverged."""
        return len(self.metrics.gap) - 1

    @property
    def rounds_per_second(self) -> float:
        return self.rounds / max(self.seconds, 1e-9)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Gap, consensus and stationarity against the round, on these axes or on new ones."""
        from dpp2.drawing import draw_convergence, new_axes

        chosen = new_axes() if axes is None else axes
        draw_convergence(self, chosen)
        return chosen

    def to_frame(self, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """The metrics as a data frame, one row for each of x^0 … x^K (extra [pandas] or [polars])."""
        from dpp2.frames import frame

        return frame(self.metrics, library)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Keep it as a run directory, which `Result.load` and `dpp2 audit` read; `force` replaces a run."""
        saved: Path = registered("save")(self, Path(path), force=force)
        return saved

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """A run directory of `save` or of `dpp2 run`."""
        loaded: Result = registered("load")(Path(path))
        return loaded

    def audit(
        self,
        attacks: list[str] | None = None,
        *,
        attacker: str = "global",
        agent: int = 0,
        game: bool = True,
        page: str | Path | None = None,
    ) -> Audited:
        """Attack it with what was overheard (none named: every attack); `page` is where the report is written."""
        options = {"attacker": attacker, "agent": agent, "game": game, "page": page}
        audited: Audited = registered("audit")(self, attacks, **options)
        return audited

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name} {value}' for name, value in self._facts().items())})"

    def _repr_html_(self) -> str:
        """For notebooks."""
        from html import escape

        rows = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self._facts().items())
        return f"<table>{''.join(rows)}</table>"

    def _facts(self) -> dict[str, str]:
        experiment, gap = self.experiment, self.metrics.gap
        facts = {
            "run": f"{experiment.algorithm.name} on {experiment.problem.name}",
            "network": f"{experiment.network.topology}, {experiment.network.agents} agents",
            "rounds": f"{self.rounds}{' (diverged)' if self.diverged else ''}",
            "gap": f"{gap[0]:.3g} → {gap[-1]:.3g}",
            "ε": str(self.privacy.epsilon) if isinstance(self.privacy.epsilon, Epsilon) else "none",
        }
        return facts | {name: f"{value:.4g}" for name, value in self.report.items()}
