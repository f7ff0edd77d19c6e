"""What MkDocs does beyond Markdown: generated pages, notebooks as pages, formulas as MathML.

Formulas are written as GitHub writes them (a fence called math), so a page reads the same there and, without any
script, on the site.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

from tools.reference import PAGES

ROOT = Path(__file__).resolve().parent.parent
_MATH = re.compile(r"^```math\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
_MARKED = re.compile(r"^(```\w+) \w+=\S+$", re.MULTILINE)  # ```sh needs=docker: for the tests, not for readers
_LEFT_ALONE = re.compile(r"(<pre.*?</pre>|<code.*?</code>|<math.*?</math>|<[^>]+>)", re.DOTALL)
_INDEX = re.compile(r"(?<![\w.])(\w|∇f|M̄|x̄|Σ)_(ij|ii|max|dp|[a-z]|\d)(?!\w)")
_POWER = re.compile(r"(\w|</sub>)\^([−-]?(?:\w\b|\d+))")

_PICTURE = re.compile(r'<p>(<img [^>]*src="([^"]+)"[^>]*>)</p>')
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEAD = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
_ROW = re.compile(r"(?=<tr>)")
_CELL = re.compile(r"<td((?: [^>]*)?)>")
_TAG = re.compile(r"<[^>]+>|\"")


def on_files(files: Files, *, config: Any) -> Files:
    """The reference, and a page for every notebook."""
    for name, made in PAGES.items():
        files.append(File.generated(config, name, content=made()))
    for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook_page(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Formulas become MathML, and what fences say to the tests goes."""
    return _MATH.sub(_mathml, _MARKED.sub(r"\1", markdown))


def on_page_content(html: str, **_: Any) -> str:
    """x_i, u_w and r^k in sentences get real indices; code, formulas and tags stay as they are.

    A picture that stands alone leads to itself: where a phone shrinks it, a tap shows it at its own size.
    """
    parts = _LEFT_ALONE.split(_PICTURE.sub(r'<p><a href="\2">\1</a></p>', _TABLE.sub(_headed, html)))
    parts[::2] = [_POWER.sub(r"\1<sup>\2</sup>", _INDEX.sub(r"\1<sub>\2</sub>", part)) for part in parts[::2]]
    return "".join(parts)


def _headed(found: re.Match[str]) -> str:
    """A table whose cells know their column: on a phone a row stands upright, each cell with its head beside it."""
    heads = [_TAG.sub("", head).strip() for head in _HEAD.findall(found[0])]
    rows = [_with_heads(row, heads) for row in _ROW.split(found[0])]
    return "".join(rows)


def _with_heads(row: str, heads: list[str]) -> str:
    cells = iter(heads)
    return _CELL.sub(lambda cell: f'<td data-head="{next(cells, "")}"{cell[1]}>', row)


def _mathml(found: re.Match[str]) -> str:
    lines = [line.strip() for line in found.group(1).splitlines() if line.strip()]
    return f'<div class="formula">{"".join(convert(line, display="block") for line in lines)}</div>'


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: its text and its code; outputs are what a reader gets by running it."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join([*parts, f"This page is the notebook [{path.name}]({path.name})."]) + "\n"
