"""A real browser on a real page: Debian's Chromium, driven by Playwright; axe-core comes from npm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.needed import not_here

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SECONDS = 120_000  # milliseconds: a machine may be busy
SCREENSHOTS = os.environ.get("DPP2_SCREENSHOTS")  # a folder for those who want to look


@contextmanager
def chromium() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        not_here("needs Chromium at /usr/bin/chromium (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


class Looked:
    """One page in a browser, and all that went wrong on it."""

    def __init__(self, browser: Browser, url: str, *, traced: bool = False, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(SECONDS)
        self.wrong: list[str] = []
        self.page.on(
            "console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self._browser = browser
        if traced:
            self.page.goto("about:blank")  # a browser that starts a process for the page is not the page
            browser.start_tracing(page=self.page, categories=["toplevel"])
        self.page.goto(url)

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def wait(self, condition: str) -> None:
        """Until an expression is true in the page."""
        self.page.wait_for_function(
            f"() => ({condition})"
        )  # a bare expression would need eval, which the policy forbids

    def shows(self, selector: str, part: str) -> None:
        self.page.wait_for_function(
            "([where, part]) => document.querySelector(where).innerText.includes(part)", arg=[selector, part]
        )

    def longest_task(self) -> float:
        """Milliseconds of processor time, of one that was traced: on a busy machine the clock tells of others' work."""
        events = json.loads(self._browser.stop_tracing())["traceEvents"]
        named = [one for one in events if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"]
        main = {(one["pid"], one["tid"]) for one in named}
        tasks = [one for one in events if (one["pid"], one["tid"]) in main and one["name"].endswith("RunTask")]
        assert len(tasks) > 100
        return max(float(one.get("tdur", 0)) for one in tasks) / 1000

    def picture(self, name: str, *, whole: bool = True) -> None:
        if SCREENSHOTS:
            self.page.screenshot(path=str(Path(SCREENSHOTS) / f"{name}.png"), full_page=whole)

    def serious(self, folder: Path) -> list[str]:
        """What axe-core finds that is serious or worse."""
        self.page.evaluate(axe(folder))
        found = self.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        bad = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        return [f"{one['id']}: {one['help']} {[node['target'] for node in one['nodes'][:3]]}" for one in bad]

    def close(self) -> None:
        self.context.close()


def axe(folder: Path) -> str:
    """axe-core's script, by npm."""
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        npm = shutil.which("npm")
        if npm is None:
            not_here("needs npm, which brings axe-core")
        command = [npm, "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder), "axe-core@4"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            not_here(f"needs axe-core from npm, which did not come ({done.stderr.strip()[-200:]})")
    return script.read_text()
