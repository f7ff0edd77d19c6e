"""`dpp2 tap`: listen between agents, and decode what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpp2 import BadInput, Experiment
from dpp2.node.cluster import Cluster
from dpp2.orchestrator.cli.app import Json, app, examples
from dpp2.orchestrator.output import console, errors, print_json
from dpp2.store.documents import plain

if TYPE_CHECKING:  # packets and frames take their time to load, and other commands need none of it
    from dpp2.adversary.tap.__main__ import Ending, Listening
    from dpp2.adversary.tap.decode import Decoded

tap = typer.Typer(help="Listen between agents, and decode what was recorded.", no_args_is_help=True)
app.add_typer(tap, name="tap")

_MOST_SENTENCES = 10  # of a kind, on a terminal; decode.json has them all

Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for what is recorded.")]
Quiet = Annotated[
    float | None, typer.Option(metavar="S", help="Stop when everybody has left and nobody has come back for so long.")
]

Patience = Annotated[float | None, typer.Option(metavar="S", help="Stop when nobody has come at all for so long.")]


@tap.command(epilog=examples("dpp2 tap relay --link 3-7=0.0.0.0:7100,10.0.0.7:7000 --out captures"))
def relay(
    link: Annotated[
        list[str],
        typer.Option(metavar="I-J=LISTEN,TARGET", help="Relay the link between agents I and J (repeatable)."),
    ],
    out: Out,
    quiet: Quiet = None,
    patience: Patience = None,
    json: Json = False,
) -> None:
    """Stand between neighbours: pass bytes on unchanged, and record them, until Ctrl-C.

    TARGET is the address of the node that is dialled, the one with the higher-numbered agent; its neighbour must be
    told LISTEN instead, in the [links] of its cluster.toml.
    """
    from dpp2.adversary.tap.__main__ import relay as relay_until_stopped

    ending = _ending(quiet=("--quiet", quiet), patience=("--patience", patience))
    failure = relay_until_stopped(link, out, lambda listening: _announce(listening, json), ending)
    if failure:
        errors.print(f"the record is incomplete: {failure}")
        raise typer.Exit(1)


@tap.command(epilog=examples("dpp2 tap sniff --interface eth0 --port 7000 --out captures"))
def sniff(
    port: Annotated[list[int], typer.Option(metavar="P", help="Keep TCP packets from or to this port (repeatable).")],
    out: Out,
    interface: Annotated[str, typer.Option(help="The network interface.")] = "lo",
    seconds: Annotated[float | None, typer.Option(metavar="S", help="Stop after this long.")] = None,
    quiet: Quiet = None,
    patience: Patience = None,
    json: Json = False,
) -> None:
    """Record the packets of an interface as pcap, until Ctrl-C. Linux; needs the right to read packets."""
    from dpp2.adversary.tap.__main__ import sniff as sniff_until_stopped

    for number in port:
        if not 0 < number < 65536:
            raise BadInput("--port", number, "a whole number from 1 to 65535")
    ending = _ending(after=("--seconds", seconds), quiet=("--quiet", quiet), patience=("--patience", patience))
    announce = partial(_announce, json=json)
    sniffer = sniff_until_stopped(interface, port, out, announce, ending)
    errors.print(f"{sniffer.packets} packets recorded, {sniffer.dropped} dropped by the kernel")


def _ending(**options: tuple[str, float | None]) -> Ending:
    """When to stop, of the options that were given."""
    from dpp2.adversary.tap.__main__ import Ending

    for name, value in options.values():
        if value is not None and not value > 0:
            raise BadInput(name, value, "a number > 0")
    return Ending(**{key: value for key, (_, value) in options.items() if value is not None})


def _announce(tap: Listening, json: bool) -> None:
    if json:
        print_json(tap)
        return
    where = tap.listening if isinstance(tap.listening, dict) else {"interface": tap.listening}
    for name, address in where.items():
        console.print(f"listening: {name} {address}")
    console.print(f"recording in {tap.record}")


@tap.command(
    epilog=examples("dpp2 tap decode captures --cluster cluster.toml --experiment experiment.toml --out overheard")
)
def decode(
    captures: Annotated[
        list[Path], typer.Argument(metavar="CAPTURE…", help="Relay records, pcap or pcapng files, or folders of them.")
    ],
    cluster: Annotated[Path, typer.Option(metavar="FILE", help="cluster.toml: where every agent listens.")],
    experiment: Annotated[Path, typer.Option(metavar="FILE", help="The experiment; only its public parts are used.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for observation.npz and decode.json.")],
    json: Json = False,
) -> None:
    """Decode captures into an observation: what the agents sent, to the byte, and what is missing from it."""
    from dpp2.adversary.tap.decode import decode as decode_captures
    from dpp2.adversary.tap.public import Public

    places = Cluster.load(cluster)
    public = Public.of(Experiment.load(experiment), places.addresses, places.links)
    decoded = decode_captures(captures, public)
    files = decoded.save(out)
    if json:
        print_json({**plain(decoded.summary), "files": files})
    else:
        _print_decoded(decoded, files)


def _print_decoded(decoded: Decoded, files: list[Path]) -> None:
    summary, observation, ciphertext = decoded.summary, decoded.observation, decoded.ciphertext
    if observation is not None and summary.rounds is not None:
        heard = f"rounds {summary.rounds.first} to {summary.rounds.last}, {summary.channels} channels"
        console.print(f"{summary.frames} frames decoded: {heard}{'' if summary.gaps else '; no gaps'}")
        if len(observation.unobserved):
            console.print(f"{len(observation.unobserved)} channels lie within one process and were not observed")
    if ciphertext is not None:
        console.print(
            f"ciphertext in {summary.encrypted_conversations} of {summary.conversations} conversations; "
            f"still visible: who talks to whom, sizes, timing, about {ciphertext.rounds_estimate} rounds"
        )
    _print_sentences("gap", summary.gaps)
    _print_sentences("note", summary.notes)
    console.print("written: " + ", ".join(str(path) for path in files))


def _print_sentences(kind: str, sentences: Sequence[str]) -> None:
    for sentence in sentences[:_MOST_SENTENCES]:
        errors.print(f"{kind}: {sentence}")
    if (more := len(sentences) - _MOST_SENTENCES) > 0:
        errors.print(f"{kind}s: {more} more in decode.json")
