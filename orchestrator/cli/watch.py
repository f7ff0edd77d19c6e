"""`dpp2 watch`, and `--watch` of the commands that run something."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpp2 import BadInput
from dpp2.orchestrator.cli.app import Json, app, examples
from dpp2.orchestrator.output import console, errors, print_json

if TYPE_CHECKING:
    from dpp2.page.watching import Watching

Watch = Annotated[
    bool, typer.Option("--watch", help="Show it on a page in the browser, from a process of its own (extra [page]).")
]
Port = Annotated[int, typer.Option(metavar="P", help="Where the page listens (0: any free port).")]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Other than this machine's own browser: with --token.")]
Token = Annotated[
    str, typer.Option(envvar="DPP2_PAGE_TOKEN", metavar="TEXT", help="What a browser elsewhere must know.")
]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")]

_UNWATCHED_SECONDS = 30.0  # after which a page that a run has started ends, once the run and all viewers have gone


@app.command(
    epilog=examples(
        "dpp2 watch runs/paper-1",
        "dpp2 watch runs/paper-1 --speed 25",
        "dpp2 watch orchestrator.watch --tap captures --port 8321",
    )
)
def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or what dpp2 orchestrate keeps.")],
    port: Port = 0,
    host: Host = "127.0.0.1",
    token: Token = "",
    speed: Annotated[
        float | None, typer.Option(metavar="R", help="Replay a run that is over, at R rounds a second.")
    ] = None,
    tap: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Captures of an eavesdropper that lie elsewhere.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="RUN may still have to begin.")] = False,
    no_open: NoOpen = False,
    started_by: Annotated[int | None, typer.Option(hidden=True)] = None,
    descriptor: Annotated[int | None, typer.Option(hidden=True)] = None,
    json: Json = False,
) -> None:
    """Show a run on a page: one under way as it goes, one that is over as it ended, or replayed.

    The page only reads. It can be ended and started again at any time, and the run does not notice.
    """
    check_installed("watch")
    from dpp2.page.address import Address, open_browser
    from dpp2.page.app import watch_app
    from dpp2.page.past import lines_of, replayed
    from dpp2.page.place import Place
    from dpp2.page.serve import door_of, serve
    from dpp2.page.watching import Watching
    from dpp2.page.worker import Worker

    if not wait and not any((run / name).is_file() for name in ("experiment.toml", "events.jsonl")):
        raise BadInput("RUN", str(run), "a run directory (--wait: one that is still to come)")
    if speed is not None:
        if not 0 < speed <= 1e6:
            raise BadInput("--speed", speed, "a number > 0: rounds a second")
        replayed(run, speed, lambda: 0.0)  # whatever is wrong with it is said now
    if not wait:
        lines_of(run)  # and so is what is wrong with one that has no events
    address, worker = Address(host, port, token, descriptor), Worker()
    watching = Watching(Place(run, tap), worker, speed=speed)

    def announce(url: str) -> None:
        announced(url, json)
        if not no_open:
            open_browser(url)

    until = None if started_by is None else partial(_unwatched, watching, started_by)
    serve(watch_app(watching, worker, door_of(address)), address, announce, until)


def announced(url: str, json: bool) -> None:
    """The one line, or the one document."""
    if json:
        print_json({"url": url})
        sys.stdout.flush()
    else:
        console.print(f"the page is at {url} (Ctrl-C ends it; the run does not notice)")


async def _unwatched(watching: Watching, parent: int) -> None:
    """Until whoever has started this page has gone, and nobody has looked for a while."""
    alone = 0.0
    while alone < _UNWATCHED_SECONDS:
        await asyncio.sleep(1.0)
        alone = 0.0 if watching.feed.viewers or os.getppid() == parent else alone + 1.0


def page_opener() -> Callable[[Path], None]:
    """Starts the page; what it needs is looked for now, before anything has begun."""
    check_installed("--watch")
    return _open_page


def _open_page(run: Path) -> None:
    """A page for a run that is about to begin. It outlives the run for as long as somebody looks.

    It holds nothing of this process but the socket: whoever reads what the run prints must not wait for the page.
    """
    from dpp2.page import doorstep
    from dpp2.page.address import Address, has_screen

    address, parent = Address(), str(os.getpid())
    with address.bound() as listening:
        url, descriptor = address.url(listening.getsockname()[1]), str(listening.fileno())
        page = [sys.executable, "-P", "-m", "dpp2.orchestrator", "watch", str(run), "--wait", "--no-open"]
        page += ["--started-by", parent, "--descriptor", descriptor]
        step = [sys.executable, "-I", "-S", doorstep.__file__, descriptor, parent, url if has_screen() else ""]
        nowhere = subprocess.DEVNULL
        subprocess.Popen(
            [*step, *page], stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True,
            pass_fds=[listening.fileno()],
        )  # fmt: skip
    errors.print(f"the page is at {url} (it ends by itself, once the run and all who look have gone)")


def check_installed(option: str) -> None:
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise BadInput(option, "on", "the extra that it needs: pip install 'dpp2[page]'")
