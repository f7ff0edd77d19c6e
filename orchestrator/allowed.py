"""Lists of the certificates that count, made from a folder of `dpp2 certs`.

    certs/allowed.txt           the list to go by: a fingerprint in each line, and whose it is
    certs/node-0/allowed.txt …  the same for each participant, who reads it again while it runs
What was revoked stays in the list as a comment, so that it does not come back when the list is made again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dpp2.errors import BadInput, UnknownName
from dpp2.node.admission import ALLOWED, shown
from dpp2.node.errors import PeerFault
from dpp2.node.tls import CERTIFICATE
from dpp2.store.files import write_text

_REVOKED = re.compile(r"^# revoked ([0-9a-f]{64}) +(\S+)$", re.MULTILINE)


def fingerprints(folder: Path) -> dict[str, str]:
    """The fingerprint of every participant's certificate, by the name of its folder."""
    found = {}
    for path in sorted(folder.glob(f"*/{CERTIFICATE}")):
        try:
            found[path.parent.name] = shown(path.read_bytes()).fingerprint
        except (OSError, PeerFault) as error:
            raise BadInput("--out", str(path), f"a readable certificate ({error})") from None
    return found


def revoked(folder: Path) -> dict[str, str]:
    """Whose certificate it was, by fingerprint."""
    try:
        text = (folder / ALLOWED).read_text()
    except FileNotFoundError:
        return {}
    return dict(_REVOKED.findall(text))


def write_lists(folder: Path, revoke: str | None = None) -> list[Path]:
    """Write the lists anew, all of them, without the certificate of `revoke`; returns the files."""
    known, gone = fingerprints(folder), revoked(folder)
    if revoke is not None:
        if revoke not in known:
            raise UnknownName("--revoke", revoke, revoke, list(known))
        gone[known[revoke]] = revoke
    text = _text(known, gone)
    paths = [folder / ALLOWED, *(folder / name / ALLOWED for name in known)]
    for path in paths:
        write_text(path, text)
    return paths


def _text(known: Mapping[str, str], gone: Mapping[str, str]) -> str:
    lines = ["# SHA-256 of the certificates that count. Whoever is not listed is turned away."]
    lines += [f"{fingerprint}  # {name}" for name, fingerprint in known.items() if fingerprint not in gone]
    lines += [f"# revoked {fingerprint} {name}" for fingerprint, name in gone.items()]
    return "\n".join(lines) + "\n"
