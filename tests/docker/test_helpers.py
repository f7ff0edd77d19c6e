"""What the tests of containers read of a node's folder is what the node wrote there. Needs no engine."""

from __future__ import annotations

from pathlib import Path

from dpp2.node.disk import RealDisk
from dpp2.node.journal import Journal
from tests.docker.containers import rounds_of


def test_rounds_are_counted_from_the_journal_of_a_node_that_is_running(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "0123"
    folder.mkdir(parents=True)
    assert rounds_of(tmp_path) == 0
    journal = Journal(RealDisk(folder), phases=2)
    journal.begin()
    for round_ in range(3):
        for phase in (1, 2)[: 1 if round_ == 2 else 2]:  # the second of the last round has not left
            journal.append(round_, phase, bytes(32))
    assert rounds_of(tmp_path) == 2
    journal.close()
