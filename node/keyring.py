"""Where a node's secrets come from: files that only their owner can read, never a channel.

With `run.seed` everything follows from the seed, as in an embedded run. Without it each agent has a key of its own,
drawn from the operating system when it is first needed, and the network shares the η key, which somebody must hand out.
Where a node hosts many agents, one key is drawn for all that have none: whoever has the node has every key anyway, and
each agent owns its slice of one keystream, as seeded agents do. A file and a keystream for each would take minutes to
write, and most of a round to draw from.
Keys never lie in a node's home: homes are copied, and who has keys and records has the gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dpp2 import keys as keyed
from dpp2.errors import BadInput
from dpp2.prepared import Secrets, seeded_keys
from dpp2.store.files import write_new
from dpp2.store.modes import check_private

_SIZE = 32
_APART = 100  # agents that have a file each, if there are no more
_SHARED = "agents.key"  # of all others


@dataclass(frozen=True)
class Keyring:
    """One key for all hosted agents or one for each, and the network's η key."""

    agents: bytes | Mapping[int, bytes] = field(repr=False)
    eta: bytes = field(repr=False)

    @classmethod
    def of(cls, seed: int | str, owned: Sequence[int], folder: Path, eta_key: Path | None) -> Keyring:
        """Seeded, or read from files: those in `folder` (made if missing) and the η key's file (never made)."""
        if isinstance(seed, int):
            return cls(*seeded_keys(seed))
        if eta_key is None:
            raise BadInput("--eta-key", None, 'the file with the network\'s η key, which run.seed = "os" needs')
        return cls(_agent_keys(owned, folder), _read(eta_key, "--eta-key"))

    def secrets(self, run_id: str) -> Secrets:
        """The keys together with the run that they are used in."""
        return Secrets(self.agents, self.eta, run_id)


def _agent_keys(owned: Sequence[int], folder: Path) -> bytes | dict[int, bytes]:
    """Of each agent the key in its own file, else the shared one; many agents without any draw that one."""
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    without = [agent for agent in owned if _own(agent) not in there]
    if not without or (len(without) <= _APART and _SHARED not in there):
        return {agent: _read_or_draw(folder / _own(agent)) for agent in owned}
    shared = _read_or_draw(folder / _SHARED)
    if len(without) == len(owned):
        return shared
    return dict.fromkeys(owned, shared) | {
        agent: _read(folder / _own(agent), "agent key") for agent in set(owned).difference(without)
    }


def key_files(folder: Path, keys: Mapping[int, bytes]) -> dict[Path, bytes]:
    """Where the keys of a node's agents belong: a file each, or one file if many share a key."""
    if len(keys) > _APART and len(set(keys.values())) == 1:
        return {folder / _SHARED: next(iter(keys.values()))}
    return {folder / _own(agent): key for agent, key in keys.items()}


def _own(agent: int) -> str:
    return f"agent-{agent}.key"


def folder_of_keys(home: Path, given: Path | None = None) -> Path:
    """Where a node has its agents' keys: `given`, or HOME-keys beside the home."""
    whole = home.resolve()
    return given or whole.with_name(f"{whole.name or 'home'}-keys")


def check_outside(home: Path, keys: Path, eta_key: Path | None) -> None:
    """Refuse keys in the home. They are not moved: the owner must know that copies of this home hold them, too."""
    whole = home.resolve()
    for option, path in (("--keys", keys), ("--eta-key", eta_key)):
        if path is not None and path.resolve().is_relative_to(whole):
            raise BadInput(option, str(path), f"a place outside --home {home}, which is copied without keys")
    for path in sorted(home.glob("agent*.key")):
        wanted = (
            f"no key in a home: move it (mkdir -m 700 -p {keys} && mv {path} {keys}) if no copy of this home has left"
        )
        raise BadInput("--home", str(path), wanted)


def write_key(path: Path, key: bytes) -> None:
    """A key file that only its owner can read; an existing one is a `FileExistsError` and is left alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_new(path, lambda file: file.write(key.hex().encode()))


def _read_or_draw(path: Path) -> bytes:
    if not path.exists():
        with suppress(FileExistsError):  # somebody else has drawn it since: then it is theirs that counts
            write_key(path, keyed.fresh_key())
    return _read(path, "agent key")


def _read(path: Path, field: str) -> bytes:
    try:
        mode, text = path.stat().st_mode, path.read_text()
    except OSError as error:
        raise BadInput(field, str(path), f"a readable key file ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BadInput(field, str(path), f"{_SIZE} bytes in hexadecimal") from None
    check_private(field, path, mode)
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        raise BadInput(field, str(path), f"{_SIZE} bytes in hexadecimal") from None
    if len(key) != _SIZE:
        raise BadInput(field, str(path), f"{_SIZE} bytes in hexadecimal, not {len(key)}")
    return key
