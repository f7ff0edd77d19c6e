"""A comparison as one HTML file that needs nothing else, and everything written into a directory."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from store.files import json_text, write_text
from studies.compare import pictures, tables
from studies.compare.comparison import Comparison

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;font-size:13px}td,th{border:1px solid #ccc;padding:.25rem .5rem;text-align:left}"
    "img{max-width:100%}"
)


def write(made: Comparison, out: Path) -> dict[str, str]:
    """compare.csv, .json, .png and .html; the paths by their ending."""
    out.mkdir(parents=True, exist_ok=True)
    paths = {ending: out / f"compare.{ending}" for ending in ("csv", "json", "png", "html")}
    write_text(paths["csv"], tables.csv_text(made))
    write_text(paths["json"], json_text(tables.document(made)))
    pictures.draw(made, paths["png"])
    write_text(paths["html"], html(made, paths["png"].read_bytes()))
    return {ending: str(path) for ending, path in paths.items()}


def html(made: Comparison, png: bytes) -> str:
    """The page: findings, picture, table, what was left out, and how it was tuned."""
    problem = made.problem
    about = (
        f"{problem.problem.name} problem, {problem.network.agents} agents, {problem.network.topology} network, "
        f"ε = {made.budget:g} per agent at δ = {problem.privacy.adjacency}, by each method's own accountant"
    )
    picture = base64.b64encode(png).decode()
    parts = [
        "<!doctype html>",
        f'<html lang="en"><meta charset="utf-8"><title>Comparison at ε = {made.budget:g}</title>',
        f"<style>{_STYLE}</style>",
        f"<h1>Comparison at ε = {made.budget:g}</h1>",
        f"<p>{escape(about)}.</p>",
        _list(tables.sentences(made)),
        f'<img alt="gap against rounds, bytes and ε" src="data:image/png;base64,{picture}">',
        _table(tables.HEAD, map(tables.cells, made.entries)),
        "<h2>Left out</h2>",
        _list(f"{one.label}: {one.reason}" for one in made.left_out) if made.left_out else "<p>Nobody.</p>",
        "<h2>How it was tuned</h2>",
        f"<p>{escape(tables.effort(made))}</p>",
        "<p>Tuning looks at the data, so the choice itself is outside every ε. ε covers the messages, not x^K.</p>",
    ]
    return "\n".join(parts) + "\n"


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return "<table><tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + f"</tr>{body}</table>"
