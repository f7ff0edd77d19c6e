"""The pages: complete, self-contained, readable without sight, and honest in their words."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dpp2 import BadInput, Experiment
from dpp2.adversary.attacker import Attacker
from dpp2.adversary.attacks import ATTACKS
from dpp2.adversary.audit import AuditReport, audit
from dpp2.adversary.findings import Skipped
from dpp2.adversary.report import render, sentences
from dpp2.adversary.report.drawing import COLOURS, power_of_ten
from dpp2.adversary.report.figures import _largest, _proven, _top, epsilon
from dpp2.adversary.report.one_line import how_far
from dpp2.adversary.report.page import badge
from dpp2.adversary.report.words import typeset
from dpp2.adversary.scoring import Stretch
from dpp2.adversary.verdicts import Outcome, Recovery, best
from dpp2.drawing import draw_convergence
from dpp2.orchestrator import plots, runner
from dpp2.prepared import PreparedRun
from dpp2.privacy.account import Account
from dpp2.store.results import load
from dpp2.studies.heatmap import document, png
from dpp2.studies.heatmap import render as render_matrix
from dpp2.studies.matrix import (
    EARLY,
    LATE,
    PROTECTIONS,
    WHEN,
    Cell,
    Known,
    Matrix,
    compare,
    differences,
    protected,
)

SMALL = {
    "network.topology": "ring",
    "network.agents": 6,
    "problem.name": "least-squares",
    "problem.dimension": 3,
    "noise.decay": 0.8,
    "run.rounds": 60,
}
SIMPLE = [attack for attack in ATTACKS if attack.name in ("prior", "direct", "telescope", "known-eta", "three-round")]
VOID = ("meta", "br", "img", "path", "use")


class Page(HTMLParser):
    """Collects what a reader meets, and checks that every element is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> AuditReport:
    path = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "convergence", lambda result, path: None)
        runner.start(Experiment.load(overrides=SMALL), path, stem="run", force=False, progress=lambda *_: None)
    return audit(path, SIMPLE, game=False)


@pytest.fixture(scope="module")
def html(report: AuditReport) -> str:
    return render(report, agent=1)


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return compare(Experiment.load(overrides=SMALL), SIMPLE, agent=2)


def test_the_page_is_well_formed_and_needs_nothing_else(html: str) -> None:
    page = Page(html)
    assert page.open == []
    assert not [tag for tag, _ in page.tags if tag in ("script", "link", "iframe", "object")]
    used = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]
    assert all(value and value.startswith("#") for value in used)
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)


def test_ids_are_unique_across_the_figures(html: str) -> None:
    ids = [value for _, attributes in Page(html).tags if (value := attributes.get("id"))]
    assert ids
    assert len(ids) == len(set(ids))


def test_every_figure_speaks(html: str) -> None:
    page = Page(html)
    figures = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(figures) == 1 + 3 + 2 + 1 + 1  # gap, each attack that listens, message and x, network, ε
    assert all(figure.get("role") == "img" and len(figure.get("aria-label") or "") > 20 for figure in figures)
    assert len({figure["aria-label"] for figure in figures}) == len(figures)
    assert html.count("<figcaption>") == html.count("<figure>") == 5
    for label in ("round k", "ε(K), the whole run", "three-round", "noise scale"):
        assert label in page.text
    assert "legend" not in html  # a key stands above its pictures, never over data


def test_logarithmic_axes_are_labelled_in_plain_letters(html: str) -> None:
    assert re.search(r">10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+<", html)
    assert (power_of_ten(1e-17), power_of_ten(1.0), power_of_ten(1000.0)) == ("10⁻¹⁷", "10⁰", "10³")


def test_the_verdict_comes_first_then_what_was_run(html: str) -> None:
    text = " ".join(Page(html).text.split())
    order = ["Overheard and undone", "The attacker, an", "What was run", "Did it converge?", "How close each attack"]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    for words in ('topology = "ring", agents = 6', "rounds = 60, seed = 1", "Resolved by dpp2", " UTC"):
        assert words in text


def test_words_are_explained_where_they_first_occur_and_once(html: str) -> None:
    page = Page(html)
    titles = [attributes["title"] for tag, attributes in page.tags if tag == "abbr"]
    assert len(titles) == len(set(titles)) == html.partition('class="words"')[2].count("<dt>") > 5
    assert html.index("<abbr") < html.index("The paper&#x27;s claims")


def test_symbols_are_typeset_and_keys_of_files_are_not() -> None:
    assert typeset("x_i, ∇f_i and δ_dp = 2^−71.") == (
        "x<sub>i</sub>, ∇f<sub>i</sub> and δ<sub>dp</sub> = 2<sup>−71</sup>."
    )
    for plain in ("run.largest_value", "truth.npz", "audit_x_i.json", "x_index", "dpp2-need"):
        assert typeset(plain) == plain


def test_plain_words_come_first_and_no_word_promises_too_much(html: str) -> None:
    text = Page(html).text
    assert text.index("The attacker, an eavesdropper on all channels") < text.index("The paper's claims")
    assert "were recovered to a relative error of" in text
    assert not re.search(r"\b(secure|safe|is private|are private)\b", text)


def test_names_are_escaped(report: AuditReport) -> None:
    odd = render(replace(report, run="runs/<b>&"), agent=0)
    assert "<title>Audit of &lt;b&gt;&amp;</title>" in odd
    assert "<b>" not in odd


def test_the_closest_attack_is_never_the_one_that_does_not_listen(report: AuditReport) -> None:
    only_prior = [one for one in report.findings if one.name == "prior"]
    assert only_prior
    assert best(only_prior, "x") is None


def test_a_local_audit_shows_its_victim(report: AuditReport) -> None:
    local = audit(Path(report.run), SIMPLE, Attacker("local", 4), game=False)
    text = Page(render(local, agent=4)).text
    assert "Agent 4 (green) is the victim" in text
    assert "1 of 6 agents" in text


def test_matrix_has_every_attacker_under_every_protection(matrix: Matrix) -> None:
    assert set(matrix.cells) == {(a, p) for a in matrix.attackers for p in PROTECTIONS}
    assert all(matrix.cell(a, "both tiers with TLS").ciphertext == (a != "neighbour") for a in matrix.attackers)
    assert matrix.cell("neighbour", "both tiers with TLS") == matrix.cell("neighbour", "both tiers")
    # No protection hides x from nobody, and tier one alone from nobody who hears everything.
    assert all(matrix.cell(a, "no protection").errors["x", when] < 1e-9 for a in matrix.attackers for when in WHEN)
    assert matrix.cell("global", "tier one").errors["x", EARLY] < 1e-9
    assert matrix.cell("global", "no protection").errors["gradient", LATE] < 1e-6
    # Noise is what protects, while it is there.
    assert matrix.cell("global", "both tiers").errors["gradient", EARLY] > 0.1


def test_matrix_pages_show_every_cell(matrix: Matrix, tmp_path: Path) -> None:
    page = Page(render_matrix(matrix))
    assert page.open == []
    assert page.text.count("ciphertext") >= 4 * 3
    assert re.search(r"Run by dpp2 \S+ on \d{4}-\d\d-\d\d, \d\d:\d\d UTC", page.text)
    assert page.text.index("When the run ends,") < page.text.index("Who recovers what")
    heat = [
        attributes["class"]
        for tag, attributes in page.tags
        if tag == "td" and "heat" in (attributes.get("class") or "")
    ]
    assert len(heat) == 4 * len(matrix.cells)
    assert set(heat) == {"heat digits", "heat recovered", "heat"}
    assert "What each protection sets" in page.text
    assert {"damping", "eta", "u_w", "u_e", "channels"} <= {attributes.get("data-head") for _, attributes in page.tags}
    assert all(protection in page.text for protection in PROTECTIONS)
    assert len(document(matrix).cells) == len(matrix.cells)
    png(matrix, tmp_path / "matrix.png")
    assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in tmp_path.iterdir()] == ["matrix.png"]


def test_the_colour_of_a_cell_says_what_the_verdict_says() -> None:
    """An error that counts as recovered has a colour, and one that does not has none."""
    key = ("x", LATE)
    errors = {0.0: Known.DIGITS, 1e-6: Known.DIGITS, 5e-3: Known.RECOVERED, 0.1: Known.RECOVERED, 0.11: Known.NOT}
    assert {error: Cell({key: error}, {}).known(key) for error in errors} == errors
    assert Cell({}, {}, ciphertext=True).known(key) == Known.NOT


def test_every_protection_says_what_it_sets() -> None:
    keys, rows = differences(Experiment.load(overrides=SMALL))
    assert set(keys) == {"algorithm.eta", "algorithm.damping", "noise.u_e", "noise.u_w"}
    assert list(rows) == list(PROTECTIONS)
    assert rows["both tiers with TLS"] == rows["both tiers"]
    assert len(set(rows.values())) == len(rows) - 1


def test_protections_differ_in_what_they_should_and_nothing_else() -> None:
    settings = protected(Experiment.load(overrides=SMALL))
    tables = {name: one.tables() for name, one in settings.items()}
    for name, table in tables.items():
        assert (table["algorithm"]["eta"] == 1.0) == (name in ("no protection", "tier two"))
        assert (table["noise"]["u_w"] == table["noise"]["u_e"] == 0.0) == (name in ("no protection", "tier one"))
        assert (table["algorithm"]["damping"] > 0) == (name == "both tiers damped")
        assert {key: table[key] for key in ("network", "problem", "run")} == {
            key: tables["both tiers"][key] for key in ("network", "problem", "run")
        }


@pytest.mark.parametrize("change", [{"noise.u_e": 0.0}, {"noise.u_w": [0.0] * 6}, {"algorithm.name": "dgd"}])
def test_a_matrix_without_two_tiers_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        protected(Experiment.load(overrides=SMALL | change))


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory) -> AuditReport:
    """No noise, and negative curvature: no step size is stable."""
    path = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "convergence", lambda result, path: None)
        runner.start(Experiment.load("counterexample"), path, stem="run", force=False, progress=lambda *_: None)
    return audit(path, SIMPLE, game=False)


def test_a_run_that_diverged_says_so_first_and_how_to_repair_it(diverged: AuditReport) -> None:
    assert diverged.divergence is not None
    assert diverged.gaps is not None
    begins = f"The run diverged, seen in round {diverged.divergence.round} (peak gap {diverged.gaps.max():.3g}): "
    seen = f"The run diverged, seen in round {diverged.divergence.round}. "
    assert sentences.verdict(diverged).startswith(seen)
    assert sentences.summary(diverged)[0].startswith(begins)
    assert "try --set algorithm.damping=" in sentences.summary(diverged)[0]
    assert render(diverged).count("The run diverged, seen in round") == 2  # the heading, and why


def test_a_run_without_noise_is_not_said_to_have_had_some(diverged: AuditReport) -> None:
    said = " ".join([*sentences.summary(diverged), *(one.evidence for one in diverged.verdicts)])
    assert "knows x to 1 % or better; there was no noise." in said
    assert "there was no noise; x_i recovered" in said
    assert "1 number per message" in said
    text = Page(render(diverged)).text
    for wrong in ("noise had gone", "of its first scale", "average out", "scale 0"):
        assert wrong not in said + text
    assert "The run diverged: this was plain in round" in text


@pytest.fixture(scope="module")
def uncovered(tmp_path_factory: pytest.TempPathFactory) -> AuditReport:
    """A run that goes on after its noise has become finer than float64."""
    path = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "convergence", lambda result, path: None)
        small = SMALL | {"run.rounds": 300}
        runner.start(Experiment.load(overrides=small), path, stem="run", force=False, progress=lambda *_: None)
    return audit(path, SIMPLE[:1], game=False)


def test_an_epsilon_that_ended_is_not_summed_up(uncovered: AuditReport) -> None:
    first = uncovered.cost.first_uncovered
    assert first is not None
    assert 50 < first < 300
    (said,) = (one for one in sentences.summary(uncovered) if "float64" in one)
    assert re.fullmatch(
        rf"No ε holds from round {first} on \(float64 cannot carry the noise\)\. "
        r"The formula alone gives \d\.\d·10[⁰¹²³⁴⁵⁶⁷⁸⁹]+, the paper's \d\.\d·10[⁰¹²³⁴⁵⁶⁷⁸⁹]+\.",
        said,
    )
    text = Page(render(uncovered)).text
    assert f"from round {first} on no ε holds" in text
    assert "δ_dp = 1)" not in " ".join(sentences.summary(uncovered))


def test_the_picture_of_epsilon_says_why_it_is_infinite(uncovered: AuditReport) -> None:
    account = PreparedRun.of(uncovered.experiment).account()
    assert isinstance(account, Account)
    assert plots.why_infinite(account, 300) == ""
    why = plots.why_infinite(replace(account, uncovered=204), 300)
    assert why.startswith("\nε = ∞: from round 204 on the noise is finer than float64")
    assert max(map(len, why.splitlines())) < 85  # more does not fit above the picture


def test_what_a_game_proves_never_falls(report: AuditReport) -> None:
    """A bound from the first rounds holds for more of them, however little the later ones add."""
    bounds = tuple(SimpleNamespace(value=value) for value in (0.0, 2.0, 1.0))
    played: Any = SimpleNamespace(bounds=bounds, stops=(1, 2, 3))
    log10 = _proven(played).log10
    assert np.isnan(log10[0])
    assert log10[1] == log10[2] == np.log10(2.0)


def test_a_local_report_speaks_of_its_victim_alone(report: AuditReport, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "convergence", lambda result, path: None)
        wide = SMALL | {"problem.dimension": 6, "run.rounds": 100}
        runner.start(
            Experiment.load(overrides=wide), tmp_path / "run", stem="run", force=False, progress=lambda *_: None
        )
    local = audit(tmp_path / "run", ATTACKS, Attacker("local", 4), game=False)
    assert "the eavesdropper has agent 4's x to " in sentences.verdict(local)
    html = render(local, agent=4)
    assert ": an eavesdropper on the channels of agent 4</title>" in html
    assert "(blue)" not in Page(html).text  # the victim is green, and nobody else was attacked
    neighbour = audit(tmp_path / "run", SIMPLE, Attacker("neighbour", 4), game=False)
    assert "agent 4 has the x of 2 agents to " in sentences.verdict(neighbour)
    assert "2 agents attacked (blue). Agent 4 (green) is the curious one" in Page(render(neighbour)).text
    assert "the eavesdropper has every agent's x to " in sentences.verdict(report)


@pytest.fixture(scope="module")
def open_x(tmp_path_factory: pytest.TempPathFactory) -> AuditReport:
    """DPP³ sends x openly and takes a gradient in some rounds only."""
    path = tmp_path_factory.mktemp("runs") / "run"
    changed = ["network.agents=6", "network.topology=ring", "run.rounds=90"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "convergence", lambda result, path: None)
        runner.start(Experiment.load("tier-three", changed), path, stem="run", force=False, progress=lambda *_: None)
    return audit(path, game=False)


def test_where_x_is_public_the_gradient_is_shown_and_x_is_no_finding(open_x: AuditReport) -> None:
    said = " ".join([sentences.verdict(open_x), *sentences.summary(open_x)])
    assert "are no secret of this algorithm" in said
    assert "knows x" not in said
    text = Page(render(open_x)).text
    assert "kept to itself: ∇f of agent 0" in text
    assert "kept to itself: x" not in text
    assert "Points: an attack that has an estimate in few rounds only." in text
    assert "noise scale own (dotted)" in text  # and no r^k: it does not decay


def test_what_is_worse_than_guessing_is_not_called_close(open_x: AuditReport) -> None:
    (found,) = (one for one in open_x.findings if one.name == "best-linear")
    bad, late = Recovery(found, 1.17, Stretch(3, 5, 1.17)), Recovery(found, 1.17, None)
    assert how_far(bad) == "no attack beats guessing zero (best: error 1.17, best-linear; guessing: 1)"
    assert how_far(late) == f"in the last rounds {how_far(bad)}"
    assert how_far(Recovery(found, 0.74, None)) == "the closest, best-linear, is off by 74 %"


def test_errors_are_not_cut_off_in_silence(report: AuditReport) -> None:
    assert _top(report.findings) >= _largest(report.findings) or _top(report.findings) == 1e12
    (prior,) = (one for one in report.findings if one.name == "prior")
    assert _top([prior]) == 1e3
    wild = replace(prior.errors["x"], rounds=np.array([1.0, 3e7, np.nan, np.inf]))
    assert _top([replace(prior, errors={"x": wild})]) == 1e8


def test_numbers_stay_in_one_piece_and_what_stands_in_files_is_code(html: str) -> None:
    assert typeset("to 1e-11 (0.0e+00)") == 'to <span class="n">1·10⁻¹¹</span> (0)'
    assert typeset("declare `noise.u_w`, x_i") == "declare <code>noise.u_w</code>, x<sub>i</sub>"
    assert typeset("version 1.2e3x, a1e-3") == "version 1.2e3x, a1e-3"
    assert "`" not in Page(html).text
    assert re.search(r"<td[^>]*><code>[^<]*u_w = ", html)
    assert not re.search(r"\d[eE][+-]\d\d", Page(re.sub(r"<code>.*?</code>", "", html)).text)


def test_attacks_left_out_for_one_reason_share_a_line() -> None:
    skipped = [Skipped("a", "needs η"), Skipped("b", "was not chosen"), Skipped("c", "needs η")]
    assert sentences.not_run(skipped) == ["not run (needs η): a, c", "b was not run: was not chosen"]
    other = [Skipped("d", "rests on rings, but dpp2 was run"), Skipped("e", "rests on stars, but dpp2 was run")]
    assert sentences.not_run(other) == ["not made for dpp2: d (rests on rings); e (rests on stars)"]


def test_the_attacks_say_themselves_that_they_are_for_other_methods(open_x: AuditReport) -> None:
    assert len(open_x.skipped) > len(sentences.not_run(open_x.skipped)) == 1


def test_every_column_has_a_head_and_a_verdict_is_in_words(html: str) -> None:
    assert '<th scope="col"></th>' not in html
    assert str(Outcome.VOID) == "not of this run"  # what programs find in audit.json
    assert "holds for the method, not for this run" in badge(Outcome.VOID)
    assert "experiment: no ε" not in Page(html).text


def test_what_is_not_plain_english_is_explained(html: str) -> None:
    for word in ("u<sub>w</sub>", "three-round"):
        assert f"<dt>{word}</dt>" in html


def test_the_verdict_is_the_heading_and_four_numbers_stand_below(report: AuditReport, uncovered: AuditReport) -> None:
    html = render(report)
    (heading,) = re.findall(r"<h1[^>]*>(.*?)</h1>", html)
    assert re.sub("</?abbr.*?>", "", heading) == typeset(sentences.verdict(report))
    assert html.index("Audit of run</p>") < html.index("<h1")
    assert [name for name, _ in sentences.measured(report)] == ["gap at the end", "error of x_i", "error of ∇f_i", "ε"]
    assert dict(sentences.measured(uncovered))["ε"] == "∞"
    assert dict(sentences.measured(report))["ε"] not in ("∞", "–")


def test_the_key_of_a_run_s_picture_lies_on_no_curve(diverged: AuditReport) -> None:
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw_convergence(load(Path(diverged.run)), axes)
    figure.draw_without_rendering()
    legend = axes.get_legend()
    assert legend is not None
    below = legend.get_window_extent().y1
    assert 0 < below < axes.get_window_extent().y0


def test_every_curve_of_the_key_is_in_every_picture_of_what_a_run_costs(uncovered: AuditReport) -> None:
    shown = epsilon(uncovered)
    assert shown is not None
    assert "paper&#x27;s Theorem 3" in shown.picture
    for picture in re.findall(r"<svg.*?</svg>", shown.picture, re.DOTALL):
        assert all(f"stroke: {colour}" in picture for colour in (COLOURS[0], COLOURS[1], COLOURS[-1]))
