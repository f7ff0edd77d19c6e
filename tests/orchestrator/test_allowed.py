"""`dpp2 certs` prints fingerprints, writes the lists of those that count, and takes one off again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from dpp2.node.admission import Admission
from dpp2.node.errors import PeerFault

Call = Callable[..., Any]
WHO = ("node-0", "node-1", "node-2", "orchestrator", "probe")


def fingerprint(folder: Path) -> str:
    """By cryptography's own account."""
    certificate = x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes())
    return certificate.fingerprint(hashes.SHA256()).hex()


def admitted(folder: Path, who: str) -> set[str]:
    """Whom a participant with this folder lets in."""
    admission, found = Admission.of(folder / who), set()
    for other in sorted(path.parent.name for path in folder.glob("*/cert.pem")):
        try:
            admission.admit((folder / other / "cert.pem").read_bytes(), datetime.now(UTC) + timedelta(seconds=1))
            found.add(other)
        except PeerFault as fault:
            assert fault.kind == "revoked"  # noqa: PT017 - being turned away is one of two answers
    return found


@pytest.fixture
def folder(dpp2: Call, tmp_path: Path) -> Path:
    assert dpp2("certs", "--agents", 3, "--out", tmp_path / "certs").code == 0
    return tmp_path / "certs"


def test_fingerprints_are_printed(dpp2: Call, tmp_path: Path) -> None:
    done = dpp2("certs", "--agents", 3, "--out", tmp_path / "certs")
    for who in WHO:
        assert f"{fingerprint(tmp_path / 'certs' / who)}  {who}\n" in done.out
    told = json.loads(dpp2("certs", "--agents", 3, "--out", tmp_path / "certs", "--json").out)
    assert told["fingerprints"] == {who: fingerprint(tmp_path / "certs" / who) for who in WHO}


def test_without_a_list_everybody_counts(folder: Path) -> None:
    assert not list(folder.rglob("allowed.txt"))
    assert admitted(folder, "node-0") == set(WHO)


def test_whoever_is_revoked_is_turned_away_by_all_and_stays_so(dpp2: Call, folder: Path) -> None:
    done = dpp2("certs", "--revoke", "node-2", "--out", folder)
    assert done.code == 0, done.err
    assert done.out == f"allowed.txt without node-2 in {folder} and in the 5 folders there: hand them out\n"
    for who in WHO:
        assert admitted(folder, who) == set(WHO) - {"node-2"}
    assert dpp2("certs", "--agents", 3, "--allow", "--out", folder).code == 0
    assert admitted(folder, "node-0") == set(WHO) - {"node-2"}
    assert dpp2("certs", "--revoke", "probe", "--out", folder).code == 0
    assert admitted(folder, "node-0") == set(WHO) - {"node-2", "probe"}


def test_a_new_certificate_takes_the_place_of_a_revoked_one(dpp2: Call, folder: Path) -> None:
    old = (folder / "node-2" / "cert.pem").read_bytes()
    assert dpp2("certs", "--revoke", "node-2", "--out", folder).code == 0
    for path in (folder / "node-2").iterdir():
        path.unlink()
    assert dpp2("certs", "--agents", 4, "--out", folder).code == 0  # lists that are kept are kept up
    assert admitted(folder, "node-0") == {*WHO, "node-3"}
    with pytest.raises(PeerFault, match="revoked"):
        Admission.of(folder / "node-0").admit(old, datetime.now(UTC))


def test_nobody_else_can_be_revoked(dpp2: Call, folder: Path) -> None:
    done = dpp2("certs", "--revoke", "node-9", "--out", folder)
    assert done.code == 2
    assert "one of node-0, node-1, node-2, orchestrator, probe" in " ".join(done.err.split())
    assert not list(folder.rglob("allowed.txt"))


def test_what_openssl_calls_a_fingerprint_is_the_same(dpp2: Call, folder: Path) -> None:
    command = ["openssl", "x509", "-in", str(folder / "node-1" / "cert.pem"), "-noout", "-fingerprint", "-sha256"]
    _, _, theirs = subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition("=")
    (folder / "node-0" / "allowed.txt").write_text(f"{theirs.strip()}  # as openssl writes it\n")
    assert admitted(folder, "node-0") == {"node-1"}
