"""What captures hold, whoever recorded them: conversations, and what is known to be missing from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dpp2.adversary.tap.reassembly import UnbrokenBytes


@dataclass(frozen=True, eq=False)
class Conversation:
    """One TCP connection, as far as it was captured: the dialling end first, where that is known."""

    ends: tuple[str, str]
    link: str  # as a relay calls it, such as "3-7"; empty if a sniffer recorded it
    sent: tuple[tuple[UnbrokenBytes, ...], tuple[UnbrokenBytes, ...]]  # by the first end, by the second

    def __str__(self) -> str:
        return f"link {self.link}" if self.link else " and ".join(self.ends)


@dataclass
class Captured:
    """Everything that a set of files holds, and what is known to be missing from it, in sentences."""

    conversations: list[Conversation] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)  # those of the gaps that speak of a whole file

    def lose(self, sentences: Iterable[str]) -> None:
        found = list(sentences)
        self.losses += found
        self.gaps += found
