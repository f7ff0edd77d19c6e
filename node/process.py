"""How a process that hosts nodes is set up: before NumPy and gRPC are loaded, and once it is ready to run rounds."""

from __future__ import annotations

import gc
import os

SETTINGS = {
    "OMP_NUM_THREADS": "1",  # matrices are small here, and neighbours want the other cores
    "OPENBLAS_NUM_THREADS": "1",
    "GRPC_VERBOSITY": "ERROR",  # it tells of every connection that ends
    "PYDANTIC_DISABLE_PLUGINS": "__all__",  # it would read the metadata of all installed packages in search of some
    # gRPC's newer engine hands reads and writes to threads of its own. The older one does them in the thread that waits
    # for them: a third more messages per second on two cores, because nobody has to be woken up in between.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
}


def set_up() -> None:
    """Whatever the user has set stays. What is being loaded is no garbage: nobody needs to look for any meanwhile."""
    gc.disable()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def ready_for_rounds() -> None:
    """Tell the collector of cycles that what is loaded stays, and that messages leave few cycles behind.

    With Python's defaults it would look at everything after some hundred messages: a tenth of the time of a round.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()
