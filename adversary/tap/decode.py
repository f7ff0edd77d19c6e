"""From conversations to an observation: what the agents sent, to the byte, and what is missing from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from adversary.observation import Observation
from adversary.tap.captures import read
from adversary.tap.frames import DecodedFrame, Heard, main_run, read_frame
from adversary.tap.http2 import messages
from adversary.tap.public import Public
from adversary.tap.reassembly import Run
from adversary.tap.streams import Captured, Conversation
from adversary.tap.tls import is_ciphertext, leaks
from dpp2.errors import BadInput


@dataclass(frozen=True, eq=False)
class Decoded:
    """What came out of captures. Without an observation, all of it was ciphertext."""

    observation: Observation | None
    ciphertext: dict[str, Any] | None
    summary: dict[str, Any]

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
                (folder / name).write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
                written.append(folder / name)
        return written


@dataclass
class _Listening:
    """What gathers while conversations are read."""

    public: Public
    runs: dict[tuple[str, int], DecodedFrame] = field(default_factory=dict)
    count: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    encrypted: list[Conversation] = field(default_factory=list)

    def hear(self, conversation: Conversation) -> None:
        if any(is_ciphertext(run) for runs in conversation.runs for run in runs):
            self.encrypted.append(conversation)
            return
        known = nodes_of(conversation, self.public)
        said = [self._frames(runs) for runs in conversation.runs]
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

    def _take(self, conversation: Conversation, frames: list[Heard], source: int, destination: int | None) -> None:
        """The frames of one direction; those that somebody else claims to send were not sent by an agent."""
        own = [frame for frame in frames if self.public.node_of_agent[frame.senders[0]] == source]
        kept = [frame for frame in own if frame.round < self.public.rounds]
        for frame in kept:
            overheard = self.runs.setdefault((frame.run, len(frame.rows[0]) // 8), DecodedFrame())
            overheard.add(frame, source, destination)
        if others := len(frames) - len(own):
            self.notes.append(f"{conversation}: {others} frames in the direction of node {source} are not its own")
        if beyond := len(own) - len(kept):
            rounds = f"the {self.public.rounds} rounds of the experiment"
            self.notes.append(f"{conversation}: {beyond} frames of node {source} lie beyond {rounds} and were left out")

    def _frames(self, runs: Sequence[Run]) -> list[Heard]:
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
    observation, facts = _observation(listening, captured)
    summary = {
        "captures": [str(path) for path in captures],
        "conversations": len(captured.conversations),
        "encrypted_conversations": len(listening.encrypted),
        **{name: listening.count[name] for name in _COUNTED},
        **facts,
    }
    return Decoded(observation, ciphertext, summary)


_COUNTED = ("http2_frames", "messages", "frames", "other_messages", "compressed_messages", "bytes_skipped")


def _observation(listening: _Listening, captured: Captured) -> tuple[Observation | None, dict[str, Any]]:
    """The observation, and what decode.json says of it."""
    public, notes = listening.public, [*captured.notes, *listening.notes]
    if listening.encrypted:
        notes.append(f"{len(listening.encrypted)} conversations are ciphertext (TLS) and were not decoded")
    if not listening.runs:
        return None, {"gaps": captured.gaps, "notes": notes}
    (run_id, dimension), left_out = main_run(listening.runs)
    overheard = listening.runs[run_id, dimension]
    observation = Observation(
        phases=overheard.arrays(public, dimension),
        P=public.P,
        first=overheard.first,
        channels=np.array(overheard.channels(public), dtype=np.int64).reshape(-1, 2),
        unobserved=np.array(public.unobserved, dtype=np.int64).reshape(-1, 2),
        gaps=(*captured.gaps, *overheard.gaps(public)),
        notes=(*notes, *left_out, *overheard.notes(public)),
    )
    facts = {
        "run": run_id,
        "dimension": dimension,
        "rounds": {"first": overheard.first, "last": overheard.last},
        "copies_merged": overheard.copies,
        "conflicts": len(overheard.conflicts),
        "channels": len(observation.channels),
        "channels_unobserved": len(observation.unobserved),
        "gaps": list(observation.gaps),
        "notes": list(observation.notes),
    }
    return observation, facts


def nodes_of(conversation: Conversation, public: Public) -> set[int]:
    """The nodes at both ends, as far as the link's name or the addresses tell."""
    if conversation.link:
        return public.nodes_of_link(conversation.link)
    return {node for end in conversation.ends for node in public.nodes_at(end)}


def speaker(frames: Sequence[Heard], known: set[int], public: Public) -> int | None:
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
