"""DPP²: decentralised optimisation with double privacy protection.

from dpp2 import Experiment, run

result = run(Experiment.load("experiments/paper.toml", ["run.rounds=100"]))
result.x            # (N, d): where the agents ended
result.metrics.gap  # (K+1,): the optimality gap at x^0 … x^K
result.observation  # what an eavesdropper on all channels has: y, z (K, N, d) and P
result.truth        # what it wants: x, grad, w, e (K, N, d) and eta (K,)
"""

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpp2.algorithms.usermethod import algorithm
    from dpp2.errors import BadInput
    from dpp2.experiment import Experiment
    from dpp2.records import Records
    from dpp2.result import Result
    from dpp2.running import run
    from dpp2.simulation import Simulation

    __version__: str

__all__ = ["BadInput", "Experiment", "Records", "Result", "Simulation", "__version__", "algorithm", "run"]

# Each when it is asked for: every room is imported through here, and `dpp2 --help` needs no mathematics.
_PLACES = MappingProxyType(
    {
        "BadInput": "dpp2.errors",
        "Experiment": "dpp2.experiment",
        "Records": "dpp2.records",
        "Result": "dpp2.result",
        "Simulation": "dpp2.simulation",
        "algorithm": "dpp2.algorithms.usermethod",
        "run": "dpp2.running",
    }
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("dpp2")
    if name not in _PLACES:
        raise AttributeError(f"module 'dpp2' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
