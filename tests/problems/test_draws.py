"""Drawing for many agents at once gives each agent what its own generator gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2.problems.base import agent_rng
from dpp2.problems.draws import standard_normals


@given(st.integers(0, 2**300), st.integers(0, 2), st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
@settings(deadline=None)
def test_draws_of_many_agents_are_those_of_their_generators(seed: int, purpose: int, agents: list[int]) -> None:
    ours = standard_normals(seed, purpose, agents, 7)
    theirs = np.stack([agent_rng(seed, purpose, agent).standard_normal(7) for agent in agents])
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**128 - 1, 2**128, 2**160])
def test_seeds_of_every_number_of_words(seed: int) -> None:
    theirs = agent_rng(seed, 1, 3).standard_normal(3)
    np.testing.assert_array_equal(standard_normals(seed, 1, range(3, 4), 3)[0], theirs)
