"""What stands for rows that are kept only to be compared: short ones themselves, long ones a tag.

The tag is Poly1305 under a key of this node and run, which with `run.seed` follows from the seed, as everything does.
It never leaves the node, and to somebody who knows neither it nor the key, two different rows of L bytes have the same
one with a probability of at most ⌈L/16⌉ · 2⁻¹⁰³. SHA-256 takes four times as long, which for rows of 100,000 numbers
was a quarter of a round.
"""

from __future__ import annotations

from collections.abc import Callable

from cryptography.hazmat.primitives.poly1305 import Poly1305

Bytes = bytes | memoryview
Fingerprint = Callable[[Bytes], bytes]

_SHORT = 512  # bytes: a tag of so few takes longer than keeping and comparing them


def fingerprinting(key: bytes) -> Fingerprint:
    """The fingerprint under a key of 32 bytes."""

    def fingerprint(rows: Bytes) -> bytes:
        return bytes(rows) if len(rows) <= _SHORT else Poly1305.generate_tag(key, rows)

    return fingerprint
