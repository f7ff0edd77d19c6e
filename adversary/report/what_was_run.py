"""Which experiment a page is about: everything that is needed to run it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dpp2 import Experiment
from dpp2.adversary.report.page import as_code, listed, section, table

_LONGEST = 60  # of a value: a list with one entry per agent is cut


def what_was_run(experiment: Experiment, made: str) -> str:
    """A row for each section of the experiment; `made` says by which version, and when."""
    rows = [[name, as_code(_spoken(values))] for name, values in experiment.tables().items() if values]
    return section("What was run", table(["section", "keys"], rows), listed([made] if made else []))


def _spoken(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {_cut(json.dumps(value, ensure_ascii=False))}" for key, value in values.items())


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
