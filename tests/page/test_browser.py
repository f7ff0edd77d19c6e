"""The page as somebody sees it: watched from start to end, killed, resumed, twenty at once, on a phone, in the dark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.conftest import call
from tests.page.browsing import Looked, chromium
from tests.page.serving import ONE_THREAD, serving

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

SMALL = ("--set", "network.agents=8", "--set", "network.topology=ring", "--set", "problem.samples=20")
LONG = (*SMALL, "--set", "run.rounds=400000", "--set", "noise.decay=1.0")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "<img src=x onerror=alert(1)>"
    assert call("run", "--set", "network.agents=20", "--set", "run.rounds=200", "--out", run).code == 0
    return run


@pytest.fixture(scope="module")
def npm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("npm")


def start(*words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dpp2.orchestrator", "run", *map(str, words)]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, env={**os.environ, **ONE_THREAD}, stderr=nowhere, stdout=nowhere)


def test_a_run_that_is_over(finished: Path, browser: Browser, npm: Path) -> None:
    with serving("watch", finished) as (url, _):
        look = Looked(browser, url)
        look.shows("#verdict", "Overheard and undone")
        look.shows("#name", "<img src=x onerror=alert(1)>")  # a name is text
        look.shows("#kicker", "FINISHED")
        look.wait("document.querySelectorAll('#errors path.series').length >= 4")
        look.wait("document.querySelectorAll('#coordinates tbody tr').length === 10")
        assert "∞" in look.text("#account-note") or "ε" in look.text("#account-note")
        look.picture("over")
        assert look.serious(npm) == []
        assert look.wrong == []
        look.close()


def test_it_is_used_by_keyboard(finished: Path, browser: Browser) -> None:
    with serving("watch", finished) as (url, _):
        look = Looked(browser, url)
        look.wait("document.querySelectorAll('#agent option').length === 20")
        look.page.focus("#agent")
        look.page.keyboard.press("ArrowDown")
        look.shows("#coordinates caption", "Agent 1 ")
        look.page.focus("#network-title ~ details summary")
        look.page.keyboard.press("Enter")
        look.wait("document.querySelectorAll('#agents tbody tr').length === 20")
        look.page.keyboard.press("Tab")
        assert look.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        look.page.check("input[value=gradient]")
        look.wait("document.querySelector('#errors svg').getAttribute('aria-label').includes('gradient')")
        assert look.wrong == []
        look.close()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("phone", {"viewport": {"width": 375, "height": 740}, "device_scale_factor": 2, "is_mobile": True}),
        ("dark", {"color_scheme": "dark"}),
        ("calm", {"reduced_motion": "reduce", "forced_colors": "active"}),
    ],
)
def test_other_ways_of_looking(name: str, options: dict[str, Any], finished: Path, browser: Browser, npm: Path) -> None:
    with serving("watch", finished) as (url, _):
        look = Looked(browser, url, **options)
        look.wait("document.querySelectorAll('#coordinates tbody tr').length === 10")
        assert look.page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")  # nothing sticks out
        look.picture(name)
        assert look.serious(npm) == []
        assert look.wrong == []
        look.close()


def test_a_run_is_watched_killed_and_resumed_and_the_page_too(tmp_path: Path, browser: Browser) -> None:
    run, port = tmp_path / "long", 0
    with serving("watch", run, "--wait") as (url, _):
        port = int(url.rstrip("/").rpartition(":")[2])
        look = Looked(browser, url)
        look.shows("#verdict", "Waiting for the run to begin")
        look.picture("waiting")
        process = start(*LONG, "--out", run)
        try:
            look.shows("#kicker", "UNDER WAY")
            look.wait("document.querySelectorAll('#errors path.series').length >= 3")
            look.picture("under-way")
            process.kill()
            process.wait(20)
            look.shows("#kicker", "NO NEWS")
            look.shows("#verdict", "No news since ")
            look.shows("#go-on", f"dpp2 run --resume {run} goes on from there.")
            look.shows("#events", "may have died")
            look.shows("#connection", "connected")
            assert "rounds a second" not in look.text("#figures")
            look.picture("silent", whole=False)
            process = start("--resume", run)
            look.shows("#events", "goes on with round")
            look.shows("#kicker", "UNDER WAY")
        finally:
            resumed = process
    try:
        look.shows("#connection", "does not answer")
        look.picture("page-killed", whole=False)
        assert resumed.poll() is None
        with serving("watch", run, "--port", port):
            look.shows("#connection", "live")  # by itself
            resumed.send_signal(signal.SIGINT)
            look.shows("#kicker", "INTERRUPTED")
            look.shows("#verdict", "Interrupted after round ")
            look.shows("#go-on", "goes on from there.")
            look.shows("#connection", "connected")
            look.picture("interrupted", whole=False)
            unexpected = [text for text in look.wrong if "ERR_CONNECTION_REFUSED" not in text and "ERR_" not in text]
            assert unexpected == []
        look.close()
    finally:
        resumed.kill()
        resumed.wait(20)


def test_twenty_pages_at_once(finished: Path, browser: Browser) -> None:
    with serving("watch", finished) as (url, _):
        looks = [Looked(browser, url) for _ in range(20)]
        for look in looks:
            look.shows("#verdict", "Overheard and undone")
            assert look.wrong == []
            look.close()


def test_playground(browser: Browser, npm: Path) -> None:
    began = time.monotonic()
    with serving("playground") as (url, _):
        look = Looked(browser, url)
        look.wait("document.querySelector('main').dataset.shown !== undefined")
        print(f"from dpp2 playground to a page with a result: {time.monotonic() - began:.2f} s")
        look.shows("#verdict", "Overheard and undone")
        look.picture("playground")
        assert look.serious(npm) == []
        for preset, kicker in (
            ("Tier one broken", "OVERHEARD"),
            ("Damped", "OVERHEARD"),
            ("Divergence", "DIVERGED"),
            ("Tier three", "NOT RECOVERED"),
        ):
            look.page.get_by_role("button", name=preset).click()
            look.shows("#kicker", kicker)
            look.picture(f"playground-{preset.lower().replace(' ', '-')}")
        look.page.get_by_role("button", name="Damped").click()
        look.shows("#verdict", "Glimpsed in round ")
        look.shows("#coordinates caption", "the one that the headline names")
        look.shows("#strength", "dpp2 audit has stronger ones")
        look.page.get_by_role("button", name="The paper").click()
        look.shows("#verdict", "Overheard and undone")
        look.page.fill("input[name=damping]", "0.5")
        look.wait("document.querySelector('main').dataset.shown === '#damping=0.5'")
        assert look.page.evaluate("location.hash") == "#damping=0.5"
        look.page.fill("input[name=agents]", "100000")
        look.shows("#refused", "agents = 100000: expected a whole number from 2 to 200")
        assert look.page.get_attribute("input[name=agents]", "aria-invalid") == "true"
        assert look.text("#wrong-here") == "expected a whole number from 2 to 200"
        look.picture("playground-refused", whole=False)
        look.page.fill("input[name=agents]", "20")
        look.wait("document.querySelector('#refused').hidden && !document.querySelector('main.stale, #wrong-here')")
        look.page.focus("input[name=u]")
        look.page.keyboard.type("e")  # what was typed is no number, and a field then says that it is empty
        look.shows("#refused", "u: expected a number")
        wrong = Looked(browser, f"{url}#topology=moebius")  # a link that no control can hold is not another experiment
        wrong.shows("#refused", "topology = 'moebius'")
        wrong.close()
        other = Looked(browser, f"{url}#damping=0.5&agents=12")  # a permalink
        other.shows("#description", "12 agents")
        assert other.page.input_value("input[name=damping]") == "0.5"
        other.page.get_by_role("button", name="Copy as command line").click()
        other.wait("document.querySelector('#copied').innerText !== ''")
        assert (look.wrong, other.wrong, wrong.wrong) == ([], [], [])


def test_two_hundred_agents_and_two_thousand_links_are_smooth(tmp_path: Path, browser: Browser) -> None:
    run = tmp_path / "large"
    large = ("network.agents=200", "network.topology=erdos-renyi", "network.probability=0.1", "run.rounds=60")
    sets = [word for one in (*large, "problem.samples=10") for word in ("--set", one)]
    assert call("run", *sets, "--out", run).code == 0
    with serving("watch", run, "--speed", 10) as (url, _):
        look = Looked(browser, url, traced=True)
        look.shows("#kicker", "FINISHED")
        look.wait("document.querySelectorAll('#coordinates tbody tr').length === 10")
        box = look.page.locator("#graph").bounding_box()
        assert box is not None
        for step in range(20):
            look.page.mouse.move(box["x"] + box["width"] * step / 20, box["y"] + box["height"] / 2)
        look.picture("large")
        longest = look.longest_task()
        print(f"longest task with {look.text('#description')}: {longest:.0f} ms")
        assert longest <= 100
        assert look.wrong == []
