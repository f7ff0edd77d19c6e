"""One page of HTML that needs nothing but itself: inline style, inline SVG, no script, light or dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from dpp2.adversary.report.words import code, explained, scientific, typeset
from dpp2.adversary.style import STYLE
from dpp2.adversary.verdicts import Outcome

_STYLE = (
    STYLE
    + """
body { margin: 0 auto; max-width: 66rem; padding: clamp(1.5rem, 4vw, 3rem) clamp(1rem, 4vw, 2.5rem) 4rem; }
header { margin: 0 0 1.75rem; }
header strong { font-weight: 560; font-size: 1.125rem; }
.kicker { color: var(--quiet); font-size: .9375rem; margin: 0 0 .375rem; overflow-wrap: anywhere; }
h1.verdict { font-size: clamp(1.2rem, 2.4vw, 1.625rem); line-height: 1.3; letter-spacing: 0; }
.measured { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem 1.25rem;
            margin: 1.25rem 0 0; }
.measured div { border-top: 1px solid var(--line); padding-top: .5rem; }
.measured dt { color: var(--quiet); font-size: .875rem; }
.measured dd { margin: 0; font-size: 1.25rem; font-weight: 560; white-space: nowrap; }
.lead { color: var(--quiet); margin: .5rem 0 0; overflow-wrap: anywhere; }
main > section { background: var(--card); border: 1px solid var(--line); border-radius: .625rem;
                 padding: clamp(1rem, 2.5vw, 1.75rem); margin: 0 0 1.25rem; }
main > .summary { border-left: 4px solid var(--accent); }
.summary ul { margin: 0; padding-left: 1.1rem; }
.summary li { margin: .35rem 0; }
td:first-child { min-width: 8rem; }
td.number { white-space: nowrap; }
td.failed, td.broken, td.open { font-weight: 600; min-width: 7rem; }
td.broken { color: var(--alarm); } td.open { color: var(--open); }
figure { margin: 0; }
figure svg, figure img { width: 100%; height: auto; display: block; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: .75rem 1.25rem; }
.panels > svg { max-width: 34rem; }
.small { grid-template-columns: repeat(auto-fit, minmax(min(100%, 15rem), 1fr)); }
.key { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: 0 0 .5rem; padding: 0; list-style: none;
       font-size: .875rem; }
.key span { display: inline-block; width: 1.5rem; border-top: 3px solid; margin-right: .5rem; vertical-align: middle; }
.n { white-space: nowrap; }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .9em; overflow-wrap: anywhere; }
sub, sup { line-height: 0; font-size: .75em; }
abbr { text-decoration: underline dotted 1px; text-underline-offset: .2em; cursor: help; }
.words { display: grid; grid-template-columns: minmax(7rem, auto) 1fr; gap: .35rem 1.25rem; margin: 0;
         font-size: .9375rem; }
.words dt { font-weight: 600; } .words dd { margin: 0; color: var(--quiet); }
td.heat, table:has(td.heat) th:not(:first-child) { padding-left: .5rem; padding-right: .5rem; }
td.heat small { display: block; font-size: .8125rem; opacity: .85; }
td.digits, .key i.digits { background: color-mix(in srgb, var(--alarm) 42%, transparent); }
td.recovered, .key i.recovered { background: color-mix(in srgb, var(--alarm) 18%, transparent); }
.key i { display: inline-block; width: 1.5rem; height: .9rem; margin-right: .5rem; vertical-align: -.1rem;
         border: 1px solid var(--line); }
figcaption { color: var(--quiet); font-size: .9375rem; margin-top: .6rem; }
details { margin-top: .75rem; }
.notes { color: var(--quiet); font-size: .9375rem; padding-left: 1.1rem; }
@media (max-width: 60rem) { th, td { padding-right: .625rem; } }
@media (max-width: 44rem) {
  .scroll thead { position: absolute; display: block; width: 1px; height: 1px; overflow: hidden;
                  clip-path: inset(50%); }
  .scroll table, .scroll tbody, .scroll tr { display: block; }
  .scroll tr { padding: .5rem 0; border-bottom: 1px solid var(--line); }
  /* The head floats in the cell's padding (42 % of the row; the cell has 58 %), so a long one makes the row higher. */
  .scroll td { display: flow-root; border: 0; padding: .125rem 0 .125rem 42%; min-height: 1.55em; white-space: normal;
               overflow-wrap: anywhere; }
  .scroll td::before { content: attr(data-head); float: left; margin-left: calc(-100% * 42 / 58);
                       width: calc(100% * 40 / 58); box-sizing: border-box; color: var(--quiet); font-weight: 400; }
  .scroll td:first-child { padding-left: 0; font-weight: 600; }
  .scroll td:first-child::before { content: none; }
  .scroll td.heat { padding: .125rem 0 .125rem 42%; } .scroll td.heat::before { padding-left: .5rem; color: inherit; }
  .words { grid-template-columns: 1fr; gap: .1rem; } .words dd { margin: 0 0 .5rem; }
}
@media print { main > section { break-inside: avoid; border: 0; padding: 0; } }
"""
)


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
            f"<section><h2>{typeset(self.title)}</h2><figure>{self.picture}"
            f"<figcaption>{typeset(self.caption)}</figcaption></figure>{numbers}</section>"
        )


def page(
    title: str, lead: str, body: Sequence[str], verdict: str = "", measured: Sequence[tuple[str, str]] = ()
) -> str:
    """A whole document. `lead` is one sentence; with numbers that were `measured` the verdict is its heading."""
    top = f"<h1>{escape(title)}</h1>"
    if measured:
        top = f'<p class="kicker">{escape(title)}</p><h1 class="verdict">{typeset(verdict)}</h1>{_measured(measured)}'
    elif verdict:
        top += f"<p><strong>{typeset(verdict)}</strong></p>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        "<body><main>"
        + explained(f'<header>{top}<p class="lead">{typeset(lead)}</p></header>\n' + "\n".join(body))
        + "\n</main></body></html>\n"
    )


def _measured(numbers: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<div><dt>{typeset(name)}</dt><dd>{typeset(value)}</dd></div>" for name, value in numbers)
    return f'<dl class="measured">{items}</dl>'


def summary(sentences: Sequence[str]) -> str:
    """What somebody who reads no further should know."""
    items = "".join(f"<li>{typeset(sentence)}</li>" for sentence in sentences)
    return f'<section class="summary" aria-label="Summary"><ul>{items}</ul></section>'


def section(title: str, *markup: str) -> str:
    return f"<section><h2>{typeset(title)}</h2>{''.join(markup)}</section>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are text, unless they are markup made by `badge` or `number`."""
    header = "".join(f'<th scope="col">{typeset(cell)}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(map(_cell, row, head))}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>'


class Markup(str):
    """A table cell that is markup already."""


def badge(outcome: Outcome) -> Markup:
    """Nothing is green: that attacks failed is no promise."""
    kinds = {Outcome.BROKEN: "broken", Outcome.NOT_RECOVERED: "failed", Outcome.NOT_REFUTED: "failed"}
    kind = kinds.get(outcome, "open")
    return Markup(f'<td class="{kind}">{outcome.words}</td>')


def number(text: str) -> Markup:
    return Markup(f'<td class="number">{escape(scientific(text))}</td>')


def as_code(text: str) -> Markup:
    """A cell with what stands in a file, such as u_w, which is no symbol there."""
    return Markup(f"<td>{code(text)}</td>")


def heated(text: str, beneath: str, kind: str) -> Markup:
    """A cell whose background says how much is known: kind "digits", "recovered" or "". Quietly beneath it: how."""
    small = f"<small>{typeset(beneath)}</small>" if beneath else ""
    return Markup(f'<td class="{f"heat {kind}".strip()}">{typeset(text)}{small}</td>')


def colours(meanings: Mapping[str, str]) -> str:
    """What the backgrounds of `heated` cells mean, by their kinds."""
    items = "".join(f'<li><i class="{kind}"></i>{typeset(meaning)}</li>' for kind, meaning in meanings.items())
    return f'<ul class="key">{items}</ul>'


def listed(items: Sequence[str]) -> str:
    return f'<ul class="notes">{"".join(f"<li>{typeset(item)}</li>" for item in items)}</ul>' if items else ""


def _cell(cell: str, head: str) -> str:
    """On a phone a row stands upright, and each cell has its head beside it."""
    markup = cell if isinstance(cell, Markup) else f"<td>{typeset(cell)}</td>"
    return markup.replace("<td", f'<td data-head="{escape(head.replace("_i", "ᵢ"))}"', 1)
