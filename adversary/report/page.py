"""One page of HTML that needs nothing but itself: inline style, inline SVG, no script, light or dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6570; --paper: #fff; --card: #f6f7f9; --line: #d9dde3;
        --bad: #b3261e; --good: #1b7f4b; --open: #7a5c00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #a3acb7; --paper: #16191d; --card: #1f2329; --line: #363c45;
          --bad: #ff8a80; --good: #6fd3a0; --open: #e8c46b; } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; }
.lead { color: var(--soft); margin: 0 0 1.5rem; }
.summary { background: var(--card); border-left: 4px solid #d55e00; border-radius: 4px; padding: .75rem 1.25rem; }
.summary li { margin: .35rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; }
th, td { text-align: left; vertical-align: top; padding: .45rem .75rem .45rem 0; border-bottom: 1px solid var(--line); }
td:first-child { min-width: 8rem; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.held, .broken, .open { font-weight: 600; white-space: nowrap; }
.held { color: var(--good); } .broken { color: var(--bad); } .open { color: var(--open); }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 1rem; }
figure svg, figure img { width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: .92rem; margin-top: .6rem; }
.notes { color: var(--soft); font-size: .92rem; }
"""


@dataclass(frozen=True)
class Shown:
    """A figure: its heading, its picture as markup, and the sentence under it."""

    title: str
    picture: str
    caption: str
    head: Sequence[str] = ()  # of a table of what is drawn, for those who read numbers
    rows: Sequence[Sequence[str]] = ()

    def html(self) -> str:
        numbers = f"<details><summary>Numbers</summary>{table(self.head, self.rows)}</details>" if self.rows else ""
        return (
            f"<section><h2>{escape(self.title)}</h2><figure>{self.picture}"
            f"<figcaption>{escape(self.caption)}</figcaption></figure>{numbers}</section>"
        )


def page(title: str, lead: str, body: Sequence[str], verdict: str = "") -> str:
    """A whole document; `body` is markup already. `verdict` is one line, for those who read no further."""
    first = f"<p><strong>{escape(verdict)}</strong></p>" if verdict else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f'<body><main><header><h1>{escape(title)}</h1>{first}<p class="lead">{escape(lead)}</p></header>\n'
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def summary(sentences: Sequence[str]) -> str:
    """What somebody who reads no further should know."""
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<section class="summary" aria-label="Summary"><ul>{items}</ul></section>'


def section(title: str, *markup: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(markup)}</section>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are text, unless they are markup made by `badge` or `number`."""
    header = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>'


class Markup(str):
    """A table cell that is markup already."""


def badge(held: bool | None, in_name: bool = False) -> Markup:
    kind, word = {True: ("held", "held"), False: ("broken", "did not hold"), None: ("open", "not judged")}[held]
    if in_name:
        kind, word = "open", "in name only"
    return Markup(f'<td class="{kind}">{word}</td>')


def number(text: str) -> Markup:
    return Markup(f'<td class="number">{escape(text)}</td>')


def listed(items: Sequence[str]) -> str:
    return f'<ul class="notes">{"".join(f"<li>{escape(item)}</li>" for item in items)}</ul>' if items else ""


def _cell(cell: str) -> str:
    return cell if isinstance(cell, Markup) else f"<td>{escape(cell)}</td>"
