"""What the names in a certificate speak for: single agents, ranges, exact sets, and nobody else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2 import BadInput
from dpp2.node.ranges import MOST_AGENTS
from dpp2.node.status import STATUS
from dpp2.node.tls import Identity, agent_name, node_name, node_names, set_name, told_agents, unproven
from dpp2.orchestrator import certs
from tests.node.live import Live, assert_same_run, live, small
from tests.node.test_tls import issued, opened

DAY = timedelta(days=1)
METADATA = 8 << 10  # what gRPC takes without a word
BLOCK, SCATTERED = tuple(range(5_000)), tuple(range(0, 50_000, 2))


@pytest.mark.parametrize("agents", [(3,), (0, 7), BLOCK, SCATTERED], ids=["one", "two", "block", "scattered"])
def test_a_certificate_speaks_for_its_agents_and_nobody_else(agents: tuple[int, ...]) -> None:
    names = node_names(agents)
    assert unproven(agents, names) == []
    assert unproven((*agents, agents[-1] + 1), names)
    assert unproven((agents[-1] + 1,), names) == [agents[-1] + 1]


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(1, 300), st.integers(1, 3), st.integers(0, 1500))
def test_an_agent_that_is_not_hosted_is_never_spoken_for(first: int, length: int, step: int, agent: int) -> None:
    hosted = range(first, first + length * step, step)
    names = node_names(hosted)
    assert unproven(hosted, names) == []
    assert agent in hosted or unproven((agent,), names) == [agent]
    assert agent in hosted or unproven(sorted((*hosted, agent)), names)


def test_names_of_single_agents_count_however_many_there_are() -> None:
    """Certificates from before ranges are still good."""
    assert unproven(BLOCK, {agent_name(agent) for agent in BLOCK}) == []


@pytest.mark.parametrize(
    "name",
    [
        "agents-0-04.dpp2",
        "agents-00-4.dpp2",
        "agents-4-0.dpp2",
        "agents-3-3.dpp2",
        "agents-0-4.dpp2.",
        "agents-0-4.dpp2\n",
        "agents-0-4.example",
        "xagents-0-4.dpp2",
        "AGENTS-0-4.dpp2",
        "agents-٠-٤.dpp2",
        "agents--4.dpp2",
        "agents-0-.dpp2",
        "agents-0-4-8.dpp2",
        "agents-0-*.dpp2",
        f"agents-0-{MOST_AGENTS}.dpp2",
        "agents-0-99999999.dpp2",
    ],
)
def test_what_is_not_exactly_a_range_speaks_for_nobody(name: str) -> None:
    assert unproven(range(3, 5), {name}) == [3, 4]


def test_ranges_may_overlap() -> None:
    """The longer one begins first, and the search must look behind the shorter one."""
    names = {"agents-0-90.dpp2", "agents-10-20.dpp2", "agents-30-40.dpp2"}
    assert unproven(range(95), names) == [91, 92, 93, 94]


@pytest.mark.parametrize("agents", [BLOCK, SCATTERED, tuple(range(100))], ids=["block", "scattered", "listed"])
def test_a_certificate_fits_into_metadata(agents: tuple[int, ...], tmp_path: Path) -> None:
    """As base64, with what a node says of itself beside it."""
    certs.make(tmp_path, [agents], days=1)
    pem = Identity.load(tmp_path / "node-0", [node_name(agents)], agents).certificate
    assert len(pem) * 4 / 3 + len(told_agents(agents)) < 0.8 * METADATA


def test_a_range_is_needed_for_all_agents_of_the_node(tmp_path: Path) -> None:
    certs.make(tmp_path, [BLOCK], days=1)
    with pytest.raises(BadInput, match=r"a certificate for agent-5000\.dpp2"):
        Identity.load(tmp_path / "node-0", [node_name(BLOCK)], (*BLOCK, 5000))


LARGE = {"network__topology": "ring", "network__agents": 260, "problem__dimension": 1, "run__rounds": 3}
GROUPS = {"ranges": [range(130), range(130, 260)], "scattered": [range(0, 260, 2), range(1, 260, 2)]}


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
async def test_many_agents_at_a_node_run_under_tls(groups: list[range], tmp_path: Path) -> None:
    """In ranges and scattered; with the bytes of an embedded run."""
    async with live(small(**LARGE), tmp_path, groups, tls=True) as nodes:
        await nodes.prepare()
        await nodes.finish()
    assert_same_run(nodes)


FIRST, SECOND = (0, 1, *range(3, 131)), (2, *range(131, 260))
CLAIMED = told_agents(FIRST)
OUTSIDERS = {
    "the last is missing": ["agents-0-1.dpp2", "agents-3-129.dpp2"],
    "the first is missing": ["agent-1.dpp2", "agents-3-130.dpp2"],
    "another set": [set_name(FIRST[:-1])],
    "the name to dial by": [node_name(FIRST)],
    "the other node": node_names(SECOND),
}


async def test_a_range_does_not_open_a_stream_for_agents_outside(tmp_path: Path) -> None:
    async with live(small(**LARGE), tmp_path, [FIRST, SECOND], tls=True) as nodes:
        await nodes.prepare()
        for name, names in OUTSIDERS.items():
            for claimed in (CLAIMED, set_name(FIRST)):
                code, details = await claims(nodes, names, claimed)
                assert code == grpc.StatusCode.UNAUTHENTICATED, name
                assert details.startswith("impostor: the certificate does not speak for agents ["), name
        assert (await claims(nodes, node_names(FIRST), CLAIMED))[0] == grpc.StatusCode.OK
        unknown = await claims(nodes, [set_name(FIRST[1:])], set_name(FIRST[1:]))
        assert unknown[0] == STATUS["bad metadata"]  # the name of a set that no neighbour hosts says nothing
        await nodes.finish()
    assert_same_run(nodes)


async def claims(nodes: Live, names: list[str], claimed: str) -> tuple[grpc.StatusCode, str]:
    """How a stream to the second node ends, from somebody with these names who claims to host these agents."""
    assert nodes.tls is not None
    now = datetime.now(UTC)
    somebody = issued(nodes.tls, names, now - DAY, now + DAY)
    return await opened(somebody.channel(f"127.0.0.1:{nodes.ports[2]}", node_name(SECOND), []), nodes, claimed)
