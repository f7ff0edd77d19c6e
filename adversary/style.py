"""What every page of this project looks like, light or dark, wide or on a phone: reports, matrices and the live page.

Reports carry it inside of themselves; the live page serves it as /static/shared.css.
"""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfbf9; --card: #ffffff; --ink: #17191c; --quiet: #5b6169; --line: #dcdedb; --faint: #eceeea;
  --accent: #0a5c8f; --accent-ink: #ffffff; --alarm: #9c2f12; --calm: #1b6b43; --open: #755700;
  --sans: system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #121417; --card: #191c20; --ink: #e8eaec; --quiet: #a2a9b1; --line: #343a41; --faint: #24292e;
    --accent: #6cb8ea; --accent-ink: #0d1216; --alarm: #f39a7c; --calm: #7ccf9f; --open: #e8c46b;
  }
}
* { box-sizing: border-box; }
html { font: 16px/1.55 var(--sans); background: var(--paper); color: var(--ink); -webkit-text-size-adjust: 100%; }
h1 { font-size: clamp(1.5rem, 3.4vw, 2.375rem); line-height: 1.2; font-weight: 620; letter-spacing: -.015em; margin: 0;
     text-wrap: balance; overflow-wrap: anywhere; }
h2 { font-size: 1.125rem; font-weight: 620; margin: 0 0 1rem; }
.scroll { overflow: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; width: 100%; }
th { text-align: left; font-weight: 600; color: var(--quiet); border-bottom: 1px solid var(--line);
     padding: .375rem 1rem .375rem 0; vertical-align: bottom; }
td { padding: .3125rem 1rem .3125rem 0; border-bottom: 1px solid var(--faint); vertical-align: top; }
summary { cursor: pointer; color: var(--accent); font-size: .9375rem; padding: .25rem 0; width: fit-content; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
"""
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def raised(exponent: int) -> str:
    """⁻³ for −3: an exponent that needs no markup."""
    return str(exponent).translate(_RAISED)
