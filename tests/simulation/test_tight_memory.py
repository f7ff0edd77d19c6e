"""With next to no room in memory every schedule still ends as the embedded run does: nobody waits for ever."""

from __future__ import annotations

import pytest

from dpp2.node.inbox import Inbox
from dpp2.node.queues import Outgoing
from tests.simulation.cluster import simulate


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(50, 1000, 50))])
def test_one_round_in_hand_and_one_frame_on_its_way(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpp2.node.limits.BYTES_IN_HAND", 1)
    put, dropped = Outgoing.put, []

    def tight(self: Outgoing, frame: bytes) -> None:
        self._most = 1
        put(self, frame)
        dropped.append(self._behind)

    monkeypatch.setattr(Outgoing, "put", tight)
    for seed in range(first, first + 50):
        simulate(seed)
    assert any(dropped)


def test_a_node_never_holds_more_of_a_neighbour_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are not used yet, whatever crashes: at most the rounds in hand."""
    take = Inbox.take
    held: list[tuple[int, int]] = []

    def counted(self: Inbox, frame: bytes, lane: object) -> bool:
        done = take(self, frame, lane)  # type: ignore[arg-type]
        held.extend(
            (sum(node in phase.rows for phase in self._taken.values()), len(self.phases)) for node in self.senders
        )
        return done

    monkeypatch.setattr(Inbox, "take", counted)
    for seed in range(30):
        simulate(seed)
    assert max(rows / phases for rows, phases in held) <= 4
