"""DPP²: decentralised optimisation with double privacy protection.

from dpp2 import Experiment, run

result = run(Experiment.load("experiments/paper.toml", ["run.rounds=100"]))
result.x            # (N, d): where the agents ended
result.metrics.gap  # (K+1,): the optimality gap at x^0 … x^K
result.observation  # what an eavesdropper on all channels has: y, z (K, N, d) and P
result.truth        # what it wants: x, grad, w, e (K, N, d) and eta (K,)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpp2.errors import BadInput
from dpp2.experiment import Experiment

if TYPE_CHECKING:
    from dpp2.records import Records
    from dpp2.simulation import Result, Simulation, run

    __version__: str

__all__ = ["BadInput", "Experiment", "Records", "Result", "Simulation", "__version__", "run"]


def __getattr__(name: str) -> Any:
    """The rest when it is asked for: nodes, of which there are many, run without it."""
    if name == "__version__":
        from importlib.metadata import version

        return version("dpp2")
    if name not in __all__:
        raise AttributeError(f"module 'dpp2' has no attribute {name!r}")
    return getattr(import_module("dpp2.records" if name == "Records" else "dpp2.simulation"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
