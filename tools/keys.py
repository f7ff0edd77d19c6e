"""Everything that containers on this machine keep to themselves, behind `make keys`. What is there already is kept.

    secrets/eta.key          the network's η key
    secrets/agent-I.key      agent I's noise key
    secrets/agent-I.npz      agent I's data: here two clouds of points, drawn for the demonstration
    secrets/certs/           an authority, and a certificate for every agent, the orchestrator and probes
    runs/nodes/              a folder for each container that must find its files again
    .env                     the user that containers run as, and the token of the live page

Containers never run as root. Compose hands a secret over as the file that it is, with its owner and its mode, so the
files belong to that user: whoever calls this, or 10001 if that is root.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from secrets import token_hex

import numpy as np

from dpp2.errors import BadInput
from dpp2.keys import fresh_key
from dpp2.node.keyring import write_key
from dpp2.orchestrator import certs
from dpp2.store.files import PRIVATE, write_npz, write_text
from dpp2.store.modes import make_private

NOBODY_IN_PARTICULAR = 10001
SAMPLES, DIMENSION = 200, 10
SPREAD = 3.4  # of the features: M_i ≈ 5, as in the paper's experiment


def main() -> None:
    parser = argparse.ArgumentParser(description="Keys, data and certificates for containers.")
    parser.add_argument("--agents", type=int, default=6, metavar="N")
    agents = range(parser.parse_args().agents)
    secrets, nodes = Path("secrets"), Path("runs/nodes")
    secrets.mkdir(mode=0o700, exist_ok=True)
    if not (unseen := secrets / ".gitignore").exists():
        write_text(unseen, "*\n")
    made = draw_keys(secrets, len(agents)) + draw_data(secrets, len(agents))
    made += certs.make(secrets / "certs", [(agent,) for agent in agents])
    for name in (*(f"agent-{agent}" for agent in agents), "orchestrator", "eavesdropper"):
        make_private(nodes / name)
    user, group = (os.getuid(), os.getgid()) if os.getuid() else (NOBODY_IN_PARTICULAR, NOBODY_IN_PARTICULAR)
    give_away(secrets, nodes, user, group)
    write_text(
        Path(".env"), f"DPP2_UID={user}\nDPP2_GID={group}\nDPP2_PAGE_TOKEN={page_token(Path('.env'))}\n", PRIVATE
    )
    print(f"{len(made)} made in {secrets}, readable by user {user} alone; containers run as that user (.env)")


def page_token(kept: Path) -> str:
    """What a browser must know to see the live page: drawn once."""
    lines = kept.read_text().splitlines() if kept.is_file() else []
    known = [line.partition("=")[2] for line in lines if line.startswith("DPP2_PAGE_TOKEN=")]
    return known[0] if known and known[0] else token_hex(16)


def draw_keys(folder: Path, agents: int) -> list[Path]:
    wanted = [folder / "eta.key", *(folder / f"agent-{agent}.key" for agent in range(agents))]
    missing = [path for path in wanted if not path.exists()]
    for path in missing:
        write_key(path, fresh_key())
    return missing


def draw_data(folder: Path, agents: int) -> list[Path]:
    """Points on two sides of one plane, a tenth of them on the wrong side; from entropy, as nobody else's data are."""
    side = np.ones(DIMENSION) / np.sqrt(DIMENSION)
    missing = [path for agent in range(agents) if not (path := folder / f"agent-{agent}.npz").exists()]
    for path in missing:
        rng = np.random.default_rng()
        features = SPREAD * rng.standard_normal((SAMPLES, DIMENSION))
        labels = np.sign(features @ side) * rng.choice([1.0, -1.0], p=[0.9, 0.1], size=SAMPLES)
        write_npz(path, {"features": features, "labels": labels}, 0o600)
    return missing


def give_away(secrets: Path, nodes: Path, user: int, group: int) -> None:
    """Secrets to be read by their owner alone; folders of runs to be written by it."""
    for path in (secrets, *sorted(secrets.rglob("*"))):
        path.chmod(0o700 if path.is_dir() else 0o400)
        _own(path, user, group)
    for path in (nodes.parent, nodes, *nodes.iterdir()):
        _own(path, user, group)
    (nodes / "eavesdropper").chmod(0o2770)  # a sniffer is root without rights over files: it writes by way of the group


def _own(path: Path, user: int, group: int) -> None:
    if path.stat().st_uid != user or path.stat().st_gid != group:
        os.chown(path, user, group)


if __name__ == "__main__":
    try:
        main()
    except BadInput as refusal:
        sys.exit(f"make keys: {refusal}")
    except PermissionError as error:
        sys.exit(f"make keys: {error.filename} is not for this user: call it as its owner, or as root")
