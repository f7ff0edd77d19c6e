"""A sentence of the paper, whether it held here, and the figures behind that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    claim: str
    held: bool
    evidence: str
