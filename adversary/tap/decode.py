"""From conversations to an observation: what the agents sent, to the byte, and what is missing from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dpp2.adversary.observation import Observation
from dpp2.adversary.tap.captures import read
from dpp2.adversary.tap.frames import HeardFrame, HeardRun, main_run, read_frame
from dpp2.adversary.tap.http2 import messages
from dpp2.adversary.tap.public import Public
from dpp2.adversary.tap.reassembly import UnbrokenBytes
from dpp2.adversary.tap.streams import Captured, Conversation
from dpp2.adversary.tap.tls import Ciphertext, is_ciphertext, leaks
from dpp2.errors import BadInput
from dpp2.store.documents import OPTIONAL
from dpp2.store.files import json_text, write_text


@dataclass(frozen=True)
class RoundSpan:
    first: int
    last: int


@dataclass(frozen=True)
class DecodeCounts:
    """What was met in captures, whatever it was."""

    captures: list[str]
    conversations: int
    encrypted_conversations: int
    http2_frames: int
    messages: int
    frames: int
    other_messages: int
    compressed_messages: int
    bytes_skipped: int


@dataclass(frozen=True)
class DecodeSummary(DecodeCounts):
    """decode.json. What is None was not there: of ciphertext nothing but conversations can be counted."""

    run: str | None = field(default=None, metadata=OPTIONAL)
    dimension: int | None = field(default=None, metadata=OPTIONAL)
    rounds: RoundSpan | None = field(default=None, metadata=OPTIONAL)
    copies_merged: int | None = field(default=None, metadata=OPTIONAL)
    conflicts: int | None = field(default=None, metadata=OPTIONAL)
    channels: int | None = field(default=None, metadata=OPTIONAL)
    channels_unobserved: int | None = field(default=None, metadata=OPTIONAL)
    gaps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Decoded:
    """What came out of captures. Without an observation, all of it was ciphertext."""

    observation: Observation | None
    ciphertext: Ciphertext | None
    summary: DecodeSummary

    def save(self, folder: Path) -> list[Path]:
        """Write what there is, and remove what an earlier decoding left there; returns the files."""
        folder.mkdir(parents=True, exist_ok=True)
        documents = {"ciphertext.json": self.ciphertext, "decode.json": self.summary}
        for name in ("observation.npz", *documents):
            (folder / name).unlink(missing_ok=True)
        written = []
        if self.observation is not None:
            self.observation.save(folder / "observation.npz")
            written.append(folder / "observation.npz")
        for name, document in documents.items():
            if document is not None:
                write_text(folder / name, json_text(document))
                written.append(folder / name)
        return written


@dataclass
class _Listening:
    """What gathers while conversations are read."""

    public: Public
    runs: dict[tuple[str, int], HeardRun] = field(default_factory=dict)
    count: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    encrypted: list[Conversation] = field(default_factory=list)

    def hear(self, conversation: Conversation) -> None:
        if any(is_ciphertext(run) for runs in conversation.sent for run in runs):
            self.encrypted.append(conversation)
            return
        known = nodes_of(conversation, self.public)
        said = [self._frames(runs) for runs in conversation.sent]
        speakers = [speaker(frames, known, self.public) for frames in said]
        for frames, source, listener in zip(said, speakers, speakers[::-1], strict=True):
            if source is None:
                if frames:
                    self.notes.append(
                        f"{conversation}: {len(frames)} frames of nodes that are not at its ends were left out"
                    )
                continue
            others = ({listener} if listener is not None else known) - {source}
            destination = min(others) if len(others) == 1 else None
            if destination is None:
                self.notes.append(f"{conversation}: who receives what node {source} sends could not be told")
            self._take(conversation, frames, source, destination)

    def _take(self, conversation: Conversation, frames: list[HeardFrame], source: int, destination: int | None) -> None:
        """The frames of one direction; those that somebody else claims to send were not sent by an agent."""
        own = [frame for frame in frames if self.public.node_of_agent[frame.senders[0]] == source]
        kept = [frame for frame in own if frame.round < self.public.rounds]
        for frame in kept:
            overheard = self.runs.setdefault((frame.run, len(frame.rows[0]) // 8), HeardRun())
            overheard.add(frame, source, destination)
        if others := len(frames) - len(own):
            self.notes.append(f"{conversation}: {others} frames in the direction of node {source} are not its own")
        if beyond := len(own) - len(kept):
            rounds = f"the {self.public.rounds} rounds of the experiment"
            self.notes.append(f"{conversation}: {beyond} frames of node {source} lie beyond {rounds} and were left out")

    def _frames(self, runs: Sequence[UnbrokenBytes]) -> list[HeardFrame]:
        """The frames in one direction; whatever else was said there is counted."""
        found = []
        for run in runs:
            for message in messages(run.data, run.missing == 0, self._is_frame, self.count):
                frame = read_frame(message, self.public)
                self.count["frames" if frame else "other_messages"] += 1
                found += [frame] if frame else []
        return found

    def _is_frame(self, message: bytes) -> bool:
        return read_frame(message, self.public) is not None


def decode(captures: Sequence[Path], public: Public) -> Decoded:
    """Read captures and put together what they tell; nothing at all is bad input."""
    captured = read(captures)
    listening = _Listening(public)
    for conversation in captured.conversations:
        listening.hear(conversation)
    if not listening.runs and not listening.encrypted:
        number = len(captured.conversations)
        wanted = f"captures of this experiment, but none of {number} conversations holds a frame of it"
        reasons = f" ({'; '.join(captured.losses)})" if captured.losses else ""
        raise BadInput("CAPTURE", [str(path) for path in captures], wanted + reasons)
    named = [between(conversation, public) for conversation in listening.encrypted]
    ciphertext = leaks(listening.encrypted, named, len(public.phases)) if listening.encrypted else None
    summary = _counted(captures, captured, listening)
    if not listening.runs:
        return Decoded(None, ciphertext, summary)
    chosen, left_out = main_run(listening.runs)
    observation = _observation(listening, chosen, summary, left_out)
    return Decoded(observation, ciphertext, _described(summary, chosen, listening.runs[chosen], observation))


def _counted(captures: Sequence[Path], captured: Captured, listening: _Listening) -> DecodeSummary:
    """What can be said of captures before anything is put together."""
    count, encrypted = listening.count, len(listening.encrypted)
    left = [f"{encrypted} conversations are ciphertext (TLS) and were not decoded"] if encrypted else []
    return DecodeSummary(
        captures=[str(path) for path in captures],
        conversations=len(captured.conversations),
        encrypted_conversations=encrypted,
        http2_frames=count["http2_frames"],
        messages=count["messages"],
        frames=count["frames"],
        other_messages=count["other_messages"],
        compressed_messages=count["compressed_messages"],
        bytes_skipped=count["bytes_skipped"],
        gaps=tuple(captured.gaps),
        notes=(*captured.notes, *listening.notes, *left),
    )


def _observation(
    listening: _Listening, chosen: tuple[str, int], summary: DecodeSummary, left_out: Sequence[str]
) -> Observation:
    """What was heard of one run."""
    public, run = listening.public, listening.runs[chosen]
    return Observation(
        phases=run.arrays(public, dimension=chosen[1]),
        P=public.P,
        first=run.first,
        channels=np.array(run.channels(public), dtype=np.int64).reshape(-1, 2),
        unobserved=np.array(public.unobserved, dtype=np.int64).reshape(-1, 2),
        gaps=(*summary.gaps, *run.gaps(public)),
        notes=(*summary.notes, *left_out, *run.notes(public)),
    )


def _described(
    summary: DecodeSummary, chosen: tuple[str, int], run: HeardRun, observation: Observation
) -> DecodeSummary:
    run_id, dimension = chosen
    return replace(
        summary,
        run=run_id,
        dimension=dimension,
        rounds=RoundSpan(run.first, run.last),
        copies_merged=run.copies,
        conflicts=len(run.conflicts),
        channels=len(observation.channels),
        channels_unobserved=len(observation.unobserved),
        gaps=observation.gaps,
        notes=observation.notes,
    )


def nodes_of(conversation: Conversation, public: Public) -> set[int]:
    """The nodes at both ends, as far as the link's name or the addresses tell."""
    if conversation.link:
        return public.nodes_of_link(conversation.link)
    return {node for end in conversation.ends for node in public.nodes_at(end)}


def speaker(frames: Sequence[HeardFrame], known: set[int], public: Public) -> int | None:
    """The node that sends in one direction: most frames are its own. None if there are no frames to tell."""
    claimed = Counter(public.node_of_agent[frame.senders[0]] for frame in frames)
    possible = {node: count for node, count in claimed.items() if len(known) < 2 or node in known}
    return max(possible, key=lambda node: possible[node]) if possible else None


def between(conversation: Conversation, public: Public) -> str:
    """Who talks to whom, in words: nodes where they are known, addresses where not."""
    nodes = sorted(nodes_of(conversation, public))
    if len(nodes) == 2:
        return f"nodes {nodes[0]} and {nodes[1]}"
    at = [sorted(public.nodes_at(end)) for end in conversation.ends]
    return " and ".join(f"node {n[0]}" if len(n) == 1 else end for n, end in zip(at, conversation.ends, strict=True))
