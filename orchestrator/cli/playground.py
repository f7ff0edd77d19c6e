"""`dpp2 playground`."""

from __future__ import annotations

from dpp2.orchestrator.cli.app import Json, app, examples
from dpp2.orchestrator.cli.watch import Host, NoOpen, Port, Token, announced, check_installed


@app.command(epilog=examples("dpp2 playground", "dpp2 playground --port 8320 --no-open"))
def playground(
    port: Port = 0,
    host: Host = "127.0.0.1",
    token: Token = "",
    no_open: NoOpen = False,
    json: Json = False,
) -> None:
    """A page with controls: every change is run at once, attacked and accounted for."""
    check_installed("playground")
    from dpp2.page.address import Address, open_browser
    from dpp2.page.worker import Worker

    address, worker = Address(host, port, token), Worker(nice=0)
    worker.prepare("dpp2.page.played")  # beside what follows: each takes half of what both take
    from dpp2.page.app import playground_app
    from dpp2.page.playground import Playground
    from dpp2.page.serve import door_of, serve

    def announce(url: str) -> None:
        announced(url, json)
        if not no_open:
            open_browser(url)

    serve(playground_app(Playground(worker), worker, door_of(address)), address, announce)
