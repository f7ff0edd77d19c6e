"""Dependencies point one way: dpp2 ← store ← node ← orchestrator ← studies, page, and store ← adversary. Read off
imports, all of them: inside functions and under TYPE_CHECKING as well."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("dpp2", "store", "node", "orchestrator", "adversary", "studies", "page")
NOT_PURE = ("grpc", "asyncio", "socket", "socketserver", "ssl", "http", "urllib", "selectors")
FORBIDDEN = {
    "dpp2": ("store", "node", "orchestrator", "adversary", "studies", "page", *NOT_PURE),
    "store": ("node", "orchestrator", "adversary", "studies", "page", *NOT_PURE),
    "node": ("orchestrator", "adversary", "studies", "page"),
    "adversary": ("node", "orchestrator", "studies", "page"),
    "orchestrator": ("adversary", "studies", "page"),
    "studies": ("orchestrator.cli", "page"),
    "page": ("orchestrator.cli", "studies"),
}
HEAVY = ("scipy", "matplotlib", "networkx", "sklearn")


def modules() -> list[tuple[str, Path]]:
    """(dotted name, file) of every module in the rooms."""
    found = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found.append((".".join(parts).removesuffix(".__init__"), path))
    return found


def imported(source: str, module: str, is_package: bool) -> Iterator[str]:
    """Everything a module imports, as dotted names; `from a import b` counts as a.b, relative ones are resolved.

    A room may be imported from below `dpp2`, where a wheel has it: `dpp2.node` is `node`.
    """
    for name in _named(source, module, is_package):
        inner = name.removeprefix("dpp2.")
        yield inner if within(inner, *ROOMS[1:]) else name


def _named(source: str, module: str, is_package: bool) -> Iterator[str]:
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            if statement.level:
                above = module.split(".")
                above = above[: len(above) - statement.level + is_package]
                base = ".".join([*above, base] if base else above)
            yield from (f"{base}.{alias.name}" for alias in statement.names)


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def is_wire_codec(name: str) -> bool:
    """The codec module and the code generated from the .proto files: what an eavesdropper can have, too."""
    return within(name, "node.codec") or any(part.endswith(("_pb2", "_pb2_grpc")) for part in name.split("."))


def allowed(module: str, name: str) -> bool:
    """Whether `module` may import `name`."""
    room = module.split(".")[0]
    if room == "adversary" and is_wire_codec(name):
        return True
    forbidden = FORBIDDEN[room]
    if within(module, "orchestrator.cli"):  # it only parses and prints, whatever is asked for
        forbidden = ()
    return not within(name, *forbidden)


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name for name, _ in modules()])
def test_imports_point_one_way(module: str, path: Path) -> None:
    names = imported(path.read_text(encoding="utf-8"), module, path.name == "__init__.py")
    assert [name for name in names if not allowed(module, name)] == []


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name for name, _ in modules()])
def test_a_room_is_imported_from_below_dpp2(module: str, path: Path) -> None:
    """By its bare name it would be a second copy in a checkout, and nothing at all in an installed package."""
    names = _named(path.read_text(encoding="utf-8"), f"dpp2.{module}", path.name == "__init__.py")
    assert [name for name in names if within(name, *ROOMS[1:])] == []


def test_the_rooms_that_exist_are_read() -> None:
    names = [name for name, _ in modules()]
    assert {"dpp2", "dpp2.keys", "dpp2.algorithms.dpp2", "orchestrator", "orchestrator.cli"} <= set(names)


def test_nothing_imports_the_tests() -> None:
    """The dumb loop is beside the product, not in it."""
    for module, path in modules():
        names = list(imported(path.read_text(encoding="utf-8"), module, path.name == "__init__.py"))
        assert not [name for name in names if within(name, "tests", "core", "dumb")], module


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dpp2.keys", "import socket"),
        ("dpp2.keys", "import asyncio.events"),
        ("dpp2.keys", "def f():\n    from grpc import aio"),
        ("dpp2.keys", "if TYPE_CHECKING:\n    from node.inbox import Inbox"),
        ("dpp2.privacy.pld", "from store import rundir"),
        ("dpp2.problems.base", "import adversary"),
        ("dpp2.problems.base", "from dpp2 import store"),
        ("dpp2.keys", "from dpp2.node.inbox import Inbox"),
        ("node.service", "from adversary import tap"),
        ("node.service", "from orchestrator.runner import start"),
        ("orchestrator.runner", "from adversary.attacks import telescope"),
        ("orchestrator.runner", "import adversary"),
        ("adversary.tap", "from node import service"),
        ("adversary.tap", "import node"),
        ("adversary.tap", "from node.checkpoint import State"),
        ("adversary.tap", "from orchestrator.cli import app"),
        ("orchestrator.runner", "from page import feed"),
        ("page.app", "from orchestrator.cli import app"),
    ],
)
def test_rule_catches(module: str, source: str) -> None:
    assert any(not allowed(module, name) for name in imported(source, module, is_package=False))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dpp2.prepared", "from dpp2 import keys\nfrom . import errors\nimport numpy.linalg"),
        ("node.service", "import asyncio, grpc\nfrom dpp2.keys import derive\nfrom .inbox import Inbox"),
        ("orchestrator.runner", "from node import service\nfrom dpp2 import run"),
        ("orchestrator.cli.audit", "from adversary.attacks import telescope"),
        ("page.hearing", "from adversary.audit import intercepted\nfrom orchestrator.merge import FolderRecords"),
        ("adversary.tap", "from node import codec\nfrom node.codec import decode\nimport dpp2.records"),
        ("adversary.tap", "from node.pb import frame_pb2\nfrom node.pb.frame_pb2 import Frame"),
        ("dpp2.nodes", "import socketless\nfrom dpp2.nodes import x"),
    ],
)
def test_rule_lets_through(module: str, source: str) -> None:
    assert all(allowed(module, name) for name in imported(source, module, is_package=False))


def test_relative_imports_are_resolved() -> None:
    assert list(imported("from . import a", "dpp2.problems.base", is_package=False)) == ["dpp2.problems.a"]
    assert list(imported("from .b import a", "dpp2.problems", is_package=True)) == ["dpp2.problems.b.a"]
    assert list(imported("from ..b import a", "dpp2.problems.base", is_package=False)) == ["dpp2.b.a"]


def test_importing_dpp2_loads_nothing_heavy() -> None:
    """An agent in a container needs numpy, pydantic and a cipher; graphs, spectra, plots and data sets load on use."""
    program = f"import sys, dpp2; print([name for name in {HEAVY + NOT_PURE[:2]!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["node.run", "node.folder", "node.codec", "adversary.tap.frames"])
def test_a_node_is_a_machine_without_io(module: str) -> None:
    """Everything below the shell loads neither gRPC nor asyncio, whatever it imports on the way."""
    program = (
        f"import sys, dpp2.{module}; print([name for name in ('grpc', 'asyncio', 'socket') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "[]"
