"""Many generators of NumPy at once: what `agent_rng(seed, purpose, agent)` draws for a whole range of agents.

A generator for each agent takes 13 µs, nearly all of it to mix the seed, and a million agents have two each. The mixing
of `numpy.random.SeedSequence` is arithmetic on 32-bit words: here all agents are mixed together, to the same words;
then one PCG64 is set to the state of each agent in turn (3 µs in all). A test compares the draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpp2.arrays import Array

Words = NDArray[np.uint32]

_POOL = 4  # words
_INIT_A, _MULT_A = 0x43B0D7E5, 0x931E8875
_INIT_B, _MULT_B = 0x8B51F9DD, 0x58F38DED
_MIX_L, _MIX_R = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_SHIFT = np.uint32(16)
_MASK = 0xFFFFFFFF
_PCG_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_TWO_128 = (1 << 128) - 1


def standard_normals(seed: int, purpose: int, agents: Sequence[int], dimension: int) -> Array:
    """Row n: the first `dimension` standard normal numbers of `agent_rng(seed, purpose, agents[n])`."""
    bits = np.random.PCG64(0)
    draw = np.random.Generator(bits).standard_normal
    drawn = np.empty((len(agents), dimension))
    state = bits.state
    inner = state["state"]
    for row, (first, second, third, fourth) in zip(drawn, _words(seed, purpose, agents).tolist(), strict=True):
        inner["state"], inner["inc"] = _pcg64(first << 64 | second, third << 64 | fourth)
        bits.state = state
        draw(out=row)
    return drawn


def _pcg64(start: int, stream: int) -> tuple[int, int]:
    """State and increment of a PCG64 that was seeded with these two: its step is s ← s·m + inc modulo 2¹²⁸."""
    inc = (stream << 1 | 1) & _TWO_128
    return ((inc + start) * _PCG_MULTIPLIER + inc) & _TWO_128, inc


def _words(seed: int, purpose: int, agents: Sequence[int]) -> NDArray[np.uint64]:
    """`SeedSequence(seed, spawn_key=(purpose, agent)).generate_state(4, uint64)` of every agent: (agents, 4)."""
    pool = _mixed(_entropy(seed, purpose, np.asarray(agents, dtype=np.uint32)), len(agents))
    hashed, constant = [], _INIT_B
    for n in range(2 * _POOL):
        word = pool[n % _POOL] ^ np.uint32(constant)
        constant = constant * _MULT_B & _MASK
        word = word * np.uint32(constant)
        hashed.append((word ^ (word >> _SHIFT)).astype(np.uint64))
    return np.stack([hashed[n] | hashed[n + 1] << np.uint64(32) for n in range(0, 2 * _POOL, 2)], axis=1)


def _entropy(seed: int, purpose: int, agents: Words) -> list[Words]:
    """The words of the seed, filled up to the size of the pool, then purpose and agent."""
    count = max(-(-seed.bit_length() // 32), 1)
    words = [seed >> 32 * n & _MASK for n in range(count)] + [0] * (_POOL - count)
    return [*(np.full(len(agents), word, np.uint32) for word in (*words, purpose)), agents]


def _mixed(entropy: list[Words], size: int) -> list[Words]:
    constant = _INIT_A

    def hashed(word: Words) -> Words:
        nonlocal constant
        word = word ^ np.uint32(constant)
        constant = constant * _MULT_A & _MASK
        word = word * np.uint32(constant)
        return word ^ (word >> _SHIFT)

    pool = [hashed(word) for word in entropy[:_POOL]]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                pool[target] = _mix(pool[target], hashed(pool[source]))
    for word in entropy[_POOL:]:
        for target in range(_POOL):
            pool[target] = _mix(pool[target], hashed(word))
    return pool


def _mix(one: Words, other: Words) -> Words:
    mixed: Words = one * _MIX_L - other * _MIX_R
    return mixed ^ (mixed >> _SHIFT)
