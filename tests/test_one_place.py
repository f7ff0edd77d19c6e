"""Nobody outside `dpp2/algorithms` asks which algorithm it has before it: no test on its class, none on its name.

What others need to know is declared by the section (`dpp2/algorithms/base.py`), so a new algorithm is one file and one
entry. The same holds for problems, and for the kinds of releases. Read off the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpp2.algorithms import ALGORITHMS
from dpp2.problems import PROBLEMS
from dpp2.topology import TOPOLOGIES

ROOT = Path(__file__).parent.parent
ROOMS = ("dpp2", "store", "node", "orchestrator", "adversary", "studies", "page")
OF_ALGORITHMS = frozenset({*ALGORITHMS.names, *(name for cls in ALGORITHMS for name in cls.variants)})
# "file" is the name of a topology as well: nobody can tell from the source which one is meant.
OF_PROBLEMS = frozenset(PROBLEMS.names) - frozenset(TOPOLOGIES.names)
NAMES = OF_ALGORITHMS | OF_PROBLEMS
# Modules that define kinds, not those that say what all kinds have in common.
KINDS = ("dpp2.algorithms.", "dpp2.problems.", "dpp2.privacy.baselines", "dpp2.privacy.dpp2_releases")
COMMON = ("dpp2.algorithms.base", "dpp2.algorithms.declared", "dpp2.algorithms.noise", "dpp2.problems.base")
# The studies of the paper run named algorithms side by side: their tables name them and test for none.
TABLES = ("studies/reproduce/", "orchestrator/cli/reproduce.py")
# Loops that write DPP² on the logistic problem out by hand, to be measured against: they are about nothing else.
BY_HAND = ("studies/bench/loops.py",)


def sources() -> list[Path]:
    found = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    left_out = ("dpp2/algorithms/", *BY_HAND)
    return [path for path in found if not path.relative_to(ROOT).as_posix().startswith(left_out)]


def kinds_imported(tree: ast.Module) -> set[str]:
    """Local names of the classes of single algorithms, problems and releases."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            single = node.module.startswith(KINDS) and not node.module.startswith(COMMON)
            names = [alias.asname or alias.name for alias in node.names]
            found |= {name for name in names if name[:1].isupper() and (single or name == "Dpp2Releases")}
    return found


def kinds_asked_for(source: str, *, tables: bool = False, names: frozenset[str] = NAMES) -> Iterator[tuple[int, str]]:
    """Where a module tests for a class or a name of an algorithm or a problem; with `tables` it may list names."""
    tree = ast.parse(source)
    classes = kinds_imported(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, asked]):
                named = {part.id for part in ast.walk(asked) if isinstance(part, ast.Name)}
                yield from ((node.lineno, f"a test for {name}") for name in sorted(named & classes))
            case ast.MatchClass(cls=ast.Name(id=name)) if name in classes:
                yield node.lineno, f"a match for {name}"
            case ast.Compare(left=left, comparators=right):
                sides = [side for side in (left, *right) if _named(side, names)]
                yield from ((node.lineno, f"a comparison with {_named(side, names)}") for side in sides)
            case ast.MatchValue(value=value) if _named(value, names):
                yield value.lineno, f"a match for {_named(value, names)}"
            case ast.Dict(keys=keys) if not tables and any(key is not None and _named(key, names) for key in keys):
                yield node.lineno, "a table by the names of kinds"


def _named(node: ast.expr, names: frozenset[str]) -> list[str]:
    """Those of the names that are in a constant or a literal collection of constants."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return [str(part.value) for part in parts if isinstance(part, ast.Constant) and part.value in names]


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_module_tests_for_an_algorithm_a_problem_or_a_kind_of_releases(path: Path) -> None:
    place = path.relative_to(ROOT).as_posix()
    names = OF_ALGORITHMS if place.startswith("dpp2/problems/") else NAMES  # problems may know each other
    found = kinds_asked_for(path.read_text(encoding="utf-8"), tables=place.startswith(TABLES), names=names)
    assert list(found) == []


@pytest.mark.parametrize(
    "source",
    [
        "from dpp2.algorithms.dpp2 import Dpp2Section\nisinstance(section, Dpp2Section)",
        "from dpp2.algorithms.dpp2 import Dpp2Section as Own\nisinstance(section, (int, Own))",
        "from dpp2.problems.logistic import Logistic\nassert isinstance(objective, Logistic)",
        "from dpp2.privacy import Dpp2Releases\nnot isinstance(m, Dpp2Releases)",
        "from dpp2.algorithms.pgtc import PgtcSection\nmatch s:\n    case PgtcSection():\n        pass",
        'section.name == "dpp2"',
        '"diff2" != knowledge.algorithm',
        'name in ("gradient-tracking", "diadsp")',
        'match section.name:\n    case "yi":\n        pass',
        'problem.get("name") == "logistic"',
        'name in ("least-squares", "sine")',
        'FURTHER = {"dgd": ("algorithm.power", (0.0, 1.0))}',
    ],
)
def test_the_rule_catches(source: str) -> None:
    assert list(kinds_asked_for(source))


@pytest.mark.parametrize(
    "source",
    [
        "from dpp2.algorithms.base import AlgorithmSection\nisinstance(section, AlgorithmSection)",
        "from dpp2.privacy import Unsupported\nisinstance(spent, Unsupported)",
        'Experiment.load(overrides={"algorithm.name": "dgd"})',
        'attack.name != "prior"',
        "section.algebra == 'tracking'",
        "from dpp2.privacy import Dpp2Releases\nDpp2Releases(dimension=1)",
    ],
)
def test_the_rule_lets_through(source: str) -> None:
    assert not list(kinds_asked_for(source))
