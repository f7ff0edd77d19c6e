"""The playground runs the real code: what it shows is what `dpp2 run` would say of the same settings."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Mapping
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment, run
from dpp2.page import playground as playground_module
from dpp2.page.app import playground_app
from dpp2.page.controls import PRESETS, Controls
from dpp2.page.guard import Door
from dpp2.page.played import play
from dpp2.page.playground import Playground, Refused
from dpp2.page.worker import Worker
from tests.page.asked import ask

SMALL = {"agents": "8", "rounds": "60", "topology": "ring"}


def played(**given: str) -> Any:
    return json.loads(play(given))


def test_it_shows_what_a_run_of_its_command_line_gives() -> None:
    state = played(**SMALL, damping="0.5")
    overrides = [part.removeprefix("--set ") for part in state["command"].removeprefix("dpp2 run ").split(" --set ")]
    result = run(Experiment.load(overrides=[part.removeprefix("--set ").strip("'") for part in overrides]))
    assert state["progress"]["points"][-1][1] == pytest.approx(result.metrics.gap[-1], rel=1e-5)
    assert state["epsilon"] == str(result.privacy.epsilon)
    assert state["paper_epsilon"] == str(result.privacy.paper_epsilon)
    assert state["progress"]["bytes"] == int(result.metrics.bytes.sum())


def test_its_toml_is_the_same_experiment() -> None:
    state = played(**SMALL, eta="0", r="0.95")
    experiment = Experiment.parse(tomllib.loads(state["toml"]))
    assert experiment.algorithm.tier_one is False
    assert experiment.setting("noise.decay") == 0.95
    assert experiment.network.agents == 8


def test_the_paper_is_overheard_and_tier_three_is_not() -> None:
    paper = played(agents="20", rounds="200")["overheard"]
    assert paper["broken"] is True
    closest = next(one for one in paper["attacks"] if one["name"] == "three-round")
    assert min(value for _, value in closest["x"] if value is not None) < 1e-3
    three = played(tier="three", epsilon="1.0", agents="20")
    assert three["overheard"]["broken"] is False
    assert three["network"]["x_is_public"] is True
    assert float(three["epsilon"]) == pytest.approx(1.0, abs=1e-3)
    errors = [value for one in three["overheard"]["attacks"] for _, value in one["gradient"] if value is not None]
    assert min(errors) > 0.1


def test_an_attack_that_is_silent_in_most_rounds_shows_what_it_claimed_last() -> None:
    found = played(tier="three", epsilon="1.0", agents="20")["overheard"]
    attack = next(one for one in found["attacks"] if one["name"] == "best-linear")
    assert 5 < len(attack["gradient"]) < 100
    assert all(error is not None for _, error in attack["gradient"])
    guess = found["guesses"]["best-linear"]
    assert guess["round"] == attack["gradient"][-1][0]
    assert None not in guess["gradient"][0]
    assert found["truths"][str(guess["round"])]["gradient"][0]


def test_tier_one_alone_is_undone_exactly() -> None:
    found = played(**SMALL, noise="0")["overheard"]
    assert found["broken"] is True
    truth, guess = found["truths"][str(found["last"])]["x"], found["guesses"]["telescope"]["x"]
    assert all(
        abs(a - b) < 1e-4 for row, other in zip(truth, guess, strict=True) for a, b in zip(row, other, strict=True)
    )


def test_epsilon_as_the_input_finds_the_noise() -> None:
    state = played(**SMALL, r="1.0", epsilon="5")
    assert float(state["epsilon"]) == pytest.approx(5.0, rel=1e-6)


def test_the_divergence_is_one() -> None:
    state = json.loads(play(PRESETS["Divergence"].query()))
    assert state["progress"]["status"] == "diverged"
    assert state["progress"]["events"][0]["what"] == "diverged"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"agents": "1000000"}, "agents = 1000000: expected a whole number from 2 to 200"),
        ({"rounds": "99999"}, "rounds = 99999: expected a whole number from 1 to 2000"),
        ({"agents": "200", "rounds": "2000"}, "rounds = 2000: expected at most 1000 with so many agents"),
        ({"agents": "٥٠"}, "agents = '٥٠': expected a whole number"),
        ({"agents": "5_0"}, "agents = '5_0': expected a whole number"),
        ({"agents": "+50"}, "agents = '+50': expected a whole number"),
        ({"u": "1_0"}, "u = '1_0': expected a number"),
        ({"agents": "x"}, "agents = 'x': expected a whole number"),
        ({"topology": "file"}, "topology"),
        ({"path": "/etc/passwd"}, "control"),
        ({"eta": "2"}, "eta = '2': expected 0 or 1"),
        ({"u": "-1"}, "u = -1.0: expected a number from 0 to 1,000,000"),
        ({"epsilon": "nan"}, "epsilon"),
        ({"u": "nan"}, "u = nan"),
        ({"tier": "four"}, "tier"),
        ({"agents": "9" * 5000}, "agents"),
        ({"topology": "<script>alert(1)</script>"}, "topology"),
        ({"u": "inf"}, "u = inf"),
        ({"damping": "-1"}, "damping = -1.0: expected a number ≥ 0"),
        ({"r": "2"}, "r = 2.0: expected a number from 0 to 1"),
        ({"tier": "three", "ratio": "1e308"}, "ratio = 1e+308: expected a number from 0 to 100,000"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_sentence(given: Mapping[str, str], sentence: str) -> None:
    answer = json.loads(play(given))
    assert sentence in answer["refused"]
    assert "\n" not in answer["refused"]


@pytest.mark.parametrize("scale", ["1e-308", "5e-324"])
def test_noise_whose_square_is_zero_is_attacked_like_any_other(scale: str) -> None:
    state = json.loads(play({"tier": "three", "u": scale, "agents": "6", "topology": "ring"}))
    assert "best-linear" in [attack["name"] for attack in state["overheard"]["attacks"]]


def test_what_does_not_apply_to_tier_three_does_not_stop_it() -> None:
    state = json.loads(play({"tier": "three", "problem": "counterexample", "agents": "6", "topology": "ring"}))
    assert state["network"]["problem"] == "logistic"


def test_every_preset_is_an_address_and_comes_back_from_it() -> None:
    for preset in PRESETS.values():
        assert Controls.parse(preset.query()) == preset


class Counting(Worker):
    """A worker that is slow, and remembers."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.go_on = asyncio.Event()

    async def do(self, work: str, *given: object) -> str:
        self.asked.append(given[0])
        await self.go_on.wait()
        return json.dumps(given[0])

    def restart(self) -> None:
        self.asked.append("restarted")

    def stop(self) -> None:
        """Nothing runs."""


async def test_of_one_viewer_the_newest_question_wins() -> None:
    worker = Counting()
    playground = Playground(worker)
    first, *others = [asyncio.create_task(playground.play({"agents": str(n)}, "me")) for n in range(5, 9)]
    await asyncio.sleep(0.01)
    worker.go_on.set()
    ended = await asyncio.gather(first, *others, return_exceptions=True)
    assert ended[0] == '{"agents": "5"}'
    assert [type(one) for one in ended[1:3]] == [Refused, Refused]
    assert ended[3] == '{"agents": "8"}'
    assert worker.asked == [{"agents": "5"}, {"agents": "8"}]
    await playground.play({"agents": "8"}, "you")
    assert len(worker.asked) == 2  # known already


async def test_a_question_whose_viewer_has_gone_is_not_computed() -> None:
    worker, gone = Counting(), asyncio.Event()

    async def has_gone() -> bool:
        return gone.is_set()

    playground = Playground(worker)
    first = asyncio.create_task(playground.play({"agents": "5"}, "a"))
    second = asyncio.create_task(playground.play({"agents": "6"}, "b", has_gone))
    await asyncio.sleep(0.01)
    gone.set()
    worker.go_on.set()
    assert await first == '{"agents": "5"}'
    with pytest.raises(Refused):
        await second
    assert worker.asked == [{"agents": "5"}]


async def test_so_many_may_wait_and_the_rest_is_refused() -> None:
    worker = Counting()
    app = playground_app(Playground(worker), worker, Door.of(["127.0.0.1"]))
    asking = [asyncio.create_task(ask(app, "/play", query=f"agents={n}&viewer={n}")) for n in range(2, 30)]
    await asyncio.sleep(0.05)
    worker.go_on.set()
    statuses = [answer.status for answer in await asyncio.gather(*asking)]
    assert statuses.count(503) == 28 - 16
    assert statuses.count(200) == 16


async def test_a_state_that_ends_in_an_error_is_said_and_the_next_is_run() -> None:
    class Failing(Worker):
        def __init__(self) -> None:
            pass

        async def do(self, work: str, *given: object) -> str:
            if given[0]:
                raise np.linalg.LinAlgError("Singular matrix")
            return "{}"

    playground = Playground(Failing())
    with pytest.raises(Refused, match=r"cannot be computed \(LinAlgError: Singular matrix\)"):
        await playground.play({"u": "1"}, "one")
    assert await playground.play({}, "one") == "{}"


async def test_its_own_files_and_nothing_else() -> None:
    worker = Counting()
    app = playground_app(Playground(worker), worker, Door.of(["127.0.0.1"]))
    page = await ask(app, "/")
    assert page.headers["content-type"].startswith("text/html")
    assert "<script>" not in page.text
    assert " style=" not in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert (await ask(app, "/static/main.js")).status == 200
    for path in ("/static/../app.py", "/static/", "/static/..%2fapp.py", "/events", "/etc/passwd", "/static/app.py"):
        assert (await ask(app, path)).status == 404, path
    described = json.loads((await ask(app, "/mode")).text)
    assert set(described["presets"]) == set(PRESETS)


async def test_one_that_takes_too_long_is_given_up_and_the_next_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playground_module, "_MOST_SECONDS", 0.05)
    worker = Counting()
    playground = Playground(worker)
    with pytest.raises(Refused) as refused:
        await playground.play({"agents": "200"}, "")
    assert refused.value.status == 503
    assert worker.asked == [{"agents": "200"}, "restarted"]
    worker.go_on.set()
    assert await playground.play({"agents": "5"}, "") == '{"agents": "5"}'


async def test_a_worker_that_is_restarted_has_given_up_what_it_did() -> None:
    worker = Worker(nice=0)
    try:
        long = asyncio.create_task(worker.do("time:sleep", 600))
        await worker_is_up(worker)
        worker.restart()
        with pytest.raises((BrokenProcessPool, asyncio.CancelledError)):
            await asyncio.wait_for(long, 60)
        assert await asyncio.wait_for(worker.do("math:sqrt", 4.0), 60) == 2.0
    finally:
        worker.stop()


async def worker_is_up(worker: Worker) -> None:
    while not getattr(worker._pool, "_processes", None):
        await asyncio.sleep(0.01)
