"""Audits of small real runs: what is recovered, what is not, what cannot be told, and where the material comes from."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dpp2
from dpp2 import BadInput, Experiment
from dpp2.adversary import game_result as contests
from dpp2.adversary.attacker import Attacker
from dpp2.adversary.attacks import ATTACKS
from dpp2.adversary.audit import AuditReport, audit
from dpp2.adversary.game_result import GameResult, Prediction
from dpp2.adversary.observation import Observation
from dpp2.adversary.report import document, render
from dpp2.adversary.report.sentences import summary
from dpp2.adversary.report.sentences import verdict as one_line
from dpp2.adversary.verdicts import Outcome, Verdict
from dpp2.algorithms import ALGORITHMS
from dpp2.orchestrator import plots, runner
from dpp2.privacy import Unsupported
from dpp2.store.documents import plain

SMALL = {
    "network.topology": "complete",
    "network.agents": 5,
    "problem.name": "least-squares",
    "problem.dimension": 3,
    "noise.decay": 0.8,
    "run.rounds": 100,
}
LOUD: dict[str, object] = {  # noise beside which no attack gets anywhere, on a run that stays where it is
    "noise__u_w": 20.0,
    "noise__u_e": 5000.0,
    "noise__decay": 1.0,
    "algorithm__damping": 1.0,
    "algorithm__alpha": 0.02,
    "algorithm__beta": 0.001,
    "run__rounds": 12,
}
QUICK = [attack for attack in ATTACKS if attack.name not in ("smoother", "data")]
CLAIMS = (
    "x_i hidden by tier one",
    "gradients hidden by tier one",
    "protection persists when noise → 0",
    "ε-DP of f_i",
)

MakeRun = Callable[..., Path]


@pytest.fixture(scope="module")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    """A finished run directory of SMALL with changes (None: the default); the same settings are run once."""
    made: dict[str, Path] = {}

    def make(**changes: object) -> Path:
        wanted = SMALL | {name.replace("__", "."): value for name, value in changes.items()}
        settings = {name: value for name, value in wanted.items() if value is not None}
        key = json.dumps(settings, sort_keys=True)
        if key not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(plots, "convergence", lambda result, path: None)
                path = tmp_path_factory.mktemp("runs") / "run"
                runner.start(
                    Experiment.load(overrides=settings), path, stem="run", force=False, progress=lambda *_: None
                )
            made[key] = path
        return made[key]

    return make


@pytest.fixture(scope="module")
def full(make_run: MakeRun) -> AuditReport:
    """Every attack on the small run."""
    return audit(make_run(), game=False)


def verdict(report: AuditReport, claim: str) -> Verdict:
    return next(one for one in report.verdicts if one.claim == claim)


def test_a_run_whose_noise_has_gone_gives_everything_away(full: AuditReport) -> None:
    assert tuple(one.claim for one in full.verdicts) == CLAIMS
    for claim in CLAIMS[:3]:
        assert verdict(full, claim).outcome is Outcome.BROKEN
        assert "recovered to " in verdict(full, claim).evidence
    found = {one.name: one for one in full.findings}
    assert found["smoother"].error("x") < 1e-6  # type: ignore[operator]
    assert found["prior"].error("x") == 1.0


def test_the_document_has_the_promised_shape(full: AuditReport) -> None:
    described = json.loads(json.dumps(plain(document(full)), allow_nan=False))
    promised = ("attacks", "epsilon", "paper_epsilon", "epsilon_lower_bound", "confidence", "verdicts")
    assert set(promised) <= set(described)
    for attack in described["attacks"]:
        assert {"name", "attacker", "x_error", "gradient_error", "eta_error", "rounds"} <= set(attack)
        for what in ("x", "gradient", "eta"):
            listed = attack["rounds"][what]
            assert listed is None or len(listed) == 100
            assert (attack[f"{what}_error"] is None) == (listed is None or not any(listed[-10:]))
    assert [set(one) for one in described["verdicts"]] == [{"claim", "outcome", "evidence"}] * 4
    assert {one["name"] for one in described["attacks"]} | {one["name"] for one in described["not_applicable"]} == {
        attack.name for attack in ATTACKS
    }
    assert described["epsilon"] > 0
    assert described["epsilon_lower_bound"] is None


def test_audits_can_be_pickled(full: AuditReport, own: AuditReport) -> None:
    for report in (full, own):
        again = pickle.loads(pickle.dumps(report))
        assert plain(document(again)) == plain(document(report))
        assert [one.name for one in again.findings] == [one.name for one in report.findings]


def test_medians_are_those_of_the_last_tenth(full: AuditReport) -> None:
    for attack in plain(document(full))["attacks"]:
        if attack["x_error"] is not None:
            assert attack["x_error"] == pytest.approx(np.median(attack["rounds"]["x"][-10:]))


def test_of_a_damped_run_products_with_damping_are_recovered_and_nothing_else_is_claimed(make_run: MakeRun) -> None:
    """Only (1+τ)α and (1+τ)β can be told from messages."""
    report = audit(make_run(algorithm__damping=0.5, noise__decay=0.5, problem__dimension=4), QUICK, game=False)
    (found,) = (one for one in report.findings if one.name == "parameter-free")
    assert found.estimate.parameters == pytest.approx({"alpha": 0.15, "beta": 0.075}, rel=1e-4)
    assert max(found.parameters.values()) < 1e-4
    (said,) = (sentence for sentence in summary(report) if "α" in sentence)
    assert said.startswith("Also recovered: (1+τ)α = 0.15 (off by ")
    assert said.endswith("With damping τ, messages tell (1+τ)α and (1+τ)β, never α, β and τ themselves.")


def test_parameters_that_are_far_off_are_not_called_recovered(make_run: MakeRun) -> None:
    """A damped run that converges faster than its noise decays: numbers come out, and they are wrong."""
    report = audit(make_run(algorithm__damping=1.0, noise__decay=0.95), QUICK, game=False)
    (found,) = (one for one in report.findings if one.name == "parameter-free")
    assert min(found.parameters.values()) > 0.01
    (said,) = (sentence for sentence in summary(report) if "α" in sentence)
    off = {name: f"{100 * error:.2g} %" for name, error in found.parameters.items()}
    assert "Not recovered by these attacks: (1+τ)α = " in said
    assert f"(off by {off['alpha']}), (1+τ)β = " in said
    assert "recovered: (1+τ)" not in said.replace("Not recovered by these attacks: ", "")


def test_tier_one_alone_hides_nothing(make_run: MakeRun) -> None:
    report = audit(make_run(noise__u_w=0.0, noise__u_e=0.0), QUICK, game=False)
    telescope = next(one for one in report.findings if one.name == "telescope")
    assert telescope.error("x") < 1e-9  # type: ignore[operator]
    assert verdict(report, CLAIMS[0]).outcome is Outcome.BROKEN
    assert verdict(report, CLAIMS[2]).outcome is Outcome.BROKEN
    assert verdict(report, CLAIMS[3]).outcome is Outcome.BROKEN
    assert "ε = ∞" in verdict(report, CLAIMS[3]).evidence


def test_lasting_noise_is_not_overcome_and_what_it_proves_is_not_overstated(make_run: MakeRun) -> None:
    report = audit(make_run(**LOUD), game=False)
    for claim, symbol in zip(CLAIMS[:2], ("x_i", "∇f_i"), strict=True):
        assert verdict(report, claim).outcome is Outcome.NOT_RECOVERED
        assert f"{symbol} not recovered by these attacks (the closest" in verdict(report, claim).evidence
    assert verdict(report, CLAIMS[2]).outcome is Outcome.NOT_JUDGED
    assert "this noise stays" in verdict(report, CLAIMS[2]).evidence


def test_what_was_recovered_in_some_rounds_did_not_hold_whatever_the_last_tenth_shows(make_run: MakeRun) -> None:
    """As x comes to rest, three rounds tell less and less: the attack has x in mid-run, and not at the end."""
    run = make_run(algorithm__damping=1.0, noise__decay=0.5, run__rounds=300)
    report = audit(run, [one for one in ATTACKS if one.name == "three-round"], game=False)
    (found,) = report.findings
    error, at = found.error("x"), found.closest("x")
    assert error is not None
    assert at is not None
    assert at.error < 1e-6 < 0.1 < error
    where = f"(three-round, an eavesdropper on all channels; {at.words})"
    assert f"x_i recovered to {at.error:.0e} {where}" in verdict(report, CLAIMS[0]).evidence
    assert [one.outcome for one in report.verdicts][:3] == [Outcome.BROKEN] * 3
    text = " ".join(summary(report))
    assert f"recovered to a relative error of {at.error:.0e}, by the three-round attack in {at.words}." in text
    assert "not recovered by these attacks" not in text
    assert f"the eavesdropper had all x in {at.words}" in one_line(report)


@pytest.mark.parametrize("chosen", [["direct"], ["prior"], ["direct", "telescope", "three-round", "window"]])
def test_attacks_that_were_not_chosen_leave_claims_unjudged(make_run: MakeRun, chosen: list[str]) -> None:
    report = audit(make_run(**LOUD), [one for one in ATTACKS if one.name in chosen], game=False)
    for claim in CLAIMS[:2]:
        assert verdict(report, claim).outcome is Outcome.NOT_JUDGED
        assert "smoother (was not chosen)" in verdict(report, claim).evidence


def test_attacks_that_have_too_little_to_work_on_leave_claims_unjudged(make_run: MakeRun) -> None:
    """Of one victim with three coordinates, four vectors are always dependent."""
    loud = {"noise__decay": 0.5}
    report = audit(make_run(**LOUD | loud), attacker=Attacker("local", 1), game=False)
    for claim in CLAIMS[:3]:
        assert verdict(report, claim).outcome is Outcome.NOT_JUDGED
        assert "three-round (needs at least five coordinates" in verdict(report, claim).evidence
        assert "window" not in verdict(report, claim).evidence  # whoever hears one agent has nothing to compare


SECRET: dict[str, object] = {"run__seed": "os", "run__telemetry": "none"}


@pytest.mark.parametrize("given_away", [{"run__seed": 1}, {"run__telemetry": "full"}])
def test_an_epsilon_that_a_run_gave_away_is_not_of_this_run(
    make_run: MakeRun, given_away: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contests, "_MOST_TRIALS", 2_000)
    kept, void = (audit(make_run(**LOUD | SECRET | more), ATTACKS[:1]) for more in ({}, given_away))
    assert verdict(kept, CLAIMS[3]).outcome is Outcome.NOT_REFUTED
    assert verdict(void, CLAIMS[3]).outcome is Outcome.VOID
    assert "The method has this ε; this run does not, because its" in verdict(void, CLAIMS[3]).evidence


def test_without_a_game_no_epsilon_is_said_to_stand(make_run: MakeRun) -> None:
    report = audit(make_run(**LOUD | SECRET), ATTACKS[:1], game=False)
    assert verdict(report, CLAIMS[3]).outcome is Outcome.NOT_JUDGED
    assert "the distinguishing game was not played" in verdict(report, CLAIMS[3]).evidence


def test_no_report_says_that_a_protection_held(full: AuditReport) -> None:
    assert not {"held", "holds", "private", "safe"} & set(Outcome)
    assert [one["outcome"] for one in plain(document(full))["verdicts"]] == [str(one.outcome) for one in full.verdicts]
    for one in full.verdicts:
        assert f">{one.outcome}</td>" in render(full)


def test_without_tier_one_its_claims_are_not_judged(make_run: MakeRun) -> None:
    report = audit(make_run(algorithm__eta=1.0), QUICK, game=False)
    assert verdict(report, CLAIMS[0]).outcome is Outcome.NOT_JUDGED
    assert "η = 1" in verdict(report, CLAIMS[0]).evidence


def test_without_truth_there_are_attacks_but_no_errors(make_run: MakeRun) -> None:
    run = make_run(run__telemetry="none")
    described = plain(document(audit(run, QUICK, game=False)))
    assert described["attacks"]
    assert all(attack["x_error"] is None and attack["rounds"]["x"] is None for attack in described["attacks"])
    assert "truth.npz" in described["unscored"]
    assert [one["outcome"] for one in described["verdicts"]][:3] == ["not judged"] * 3
    assert described["epsilon"] > 0
    with pytest.raises(BadInput, match=r"truth\.npz"):
        audit(run, attacks=QUICK, attacker=Attacker("neighbour"), game=False)


@pytest.mark.parametrize("kind", ["local", "neighbour", "partial"])
def test_every_attacker_has_its_own_view(make_run: MakeRun, kind: str) -> None:
    run = make_run(network__topology="ring", network__agents=6, problem__dimension=6)
    report = audit(run, attacker=Attacker(kind, 2), game=False)
    assert report.view is not None
    assert {"local": (2,), "neighbour": (1, 3)}.get(kind, report.view.agents) == report.view.agents
    assert verdict(report, CLAIMS[0]).outcome is Outcome.BROKEN
    used = {one.name for one in report.findings}
    assert ("known-eta" in used) == (kind == "neighbour")


def test_a_taps_record_is_used_in_place_of_the_runs_own(make_run: MakeRun, tmp_path: Path) -> None:
    run = _copied(make_run(), tmp_path)
    whole = Observation.load(run / "observation.npz")
    late = {name: rows[20:] for name, rows in whole.phases.items()}
    (run / "tap").mkdir()
    Observation(late, whole.P, first=20, channels=whole.channels, gaps=("rounds 0–19 were missed",)).save(
        run / "tap" / "observation.npz"
    )
    report = audit(run, QUICK, game=False)
    assert "decoded from the bytes on the wire" in plain(document(report))["observation"]
    assert "rounds 0–19 were missed" in plain(document(report))["notes"]
    assert {one.name for one in report.skipped} >= {"telescope"}
    assert report.last == (92, 99)
    assert len(plain(document(report))["attacks"][0]["rounds"]["x"]) == 80
    assert report.cost.rounds == 100
    assert verdict(report, CLAIMS[0]).outcome is Outcome.BROKEN


def test_ciphertext_leaves_an_eavesdropper_nothing_and_a_neighbour_everything(
    make_run: MakeRun, tmp_path: Path
) -> None:
    run = _copied(make_run(), tmp_path)
    (run / "tap").mkdir()
    seen = {"still_leaks": ["sizes", "timing"], "directions": [{"bytes": 40}, {"bytes": 2}], "rounds_estimate": 149}
    (run / "tap" / "ciphertext.json").write_text(json.dumps(seen))
    report = audit(run, QUICK, game=False)
    described = plain(document(report))
    assert described["attacks"] == []
    assert "nothing to work on" in described["unscored"]
    assert described["leaks"][:2] == ["sizes", "timing"]
    assert "2 directions, 42 bytes" in described["leaks"][2]
    assert [one.outcome for one in report.verdicts][:3] == [Outcome.NOT_JUDGED] * 3
    assert "ciphertext" in render(report)
    insider = audit(run, QUICK, Attacker("neighbour", 1), game=False)
    assert verdict(insider, CLAIMS[0]).outcome is Outcome.BROKEN
    (run / "tap" / "ciphertext.json").write_text("{}")
    with pytest.raises(BadInput, match=r"ciphertext\.json"):
        audit(run, QUICK, game=False)


@pytest.mark.parametrize("name", [section.model_fields["name"].default for section in ALGORITHMS])
def test_every_algorithm_can_be_audited(make_run: MakeRun, name: str) -> None:
    section = next(one for one in ALGORITHMS if one.model_fields["name"].default == name)
    decay = 0.8 if "decay" in section.noise_section.model_fields else None  # some have noise of constant variance
    run = make_run(
        algorithm__name=name,
        network__topology="star",
        problem__name="logistic",
        noise__decay=decay,
        run__rounds=12,
    )
    played = name in ("dpp2", "dpp3", "decor")
    report = audit(run, game=not played)
    assert {one.name for one in report.findings} | {one.name for one in report.skipped} == {a.name for a in ATTACKS}
    assert all(one.reason for one in report.skipped)
    if not played:
        assert isinstance(report.game, Unsupported)
    if name != "dpp2":
        assert "no tier one" in verdict(report, CLAIMS[0]).evidence
    if name in ("dpp2", "dgd"):  # the others look alike, and drawing takes a second
        assert "All attacks" in render(report)


OWN = """
from dpp2 import algorithm

@algorithm(noise={"x": 1.0}, carries_x="m")
def descent(s, k, own, *, alpha=0.1):
    m = own.noisy("x", s.x)
    Pm = yield m
    return {"x": m - Pm - alpha * own.gradient(s.x)}

@descent.account
def cost(agent):
    return agent.step_releases(agent.alpha)
"""


@pytest.fixture
def own(tmp_path: Path) -> AuditReport:
    """Of a method that a user has written, with the account that it brings along."""
    (tmp_path / "own.py").write_text(OWN)
    mine = {"name": "file", "path": str(tmp_path / "own.py")}
    ring = {"topology": "ring", "agents": 3}
    audited = dpp2.run(Experiment(algorithm=mine, network=ring, run={"rounds": 5})).audit(["direct", "three-round"])
    assert isinstance(audited, AuditReport)
    return audited


def test_what_does_not_apply_to_a_users_method_calls_it_by_its_name(own: AuditReport) -> None:
    assert own.game == Unsupported("no worst pair of objectives is known for descent")
    assert [one.reason for one in own.skipped] == ["rests on the messages y and z of DPP², but descent was run"]


def test_an_epsilon_that_its_author_claims_is_said_to_be_that(own: AuditReport) -> None:
    claimed = "the account that descent brings along, which nothing here has proved"
    assert f" by {claimed};" in verdict(own, CLAIMS[3]).evidence
    assert any(
        f" by {claimed}; the paper's Theorem 3 does not apply (the paper accounts" in told for told in summary(own)
    )
    page = render(own)
    assert "exact account" not in page
    assert "account of its author" in page


def test_the_game_is_part_of_an_audit(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contests, "_MOST_TRIALS", 5_000)
    report = audit(make_run(), ATTACKS[:1])
    assert isinstance(report.game, GameResult)
    assert isinstance(report.game.prediction, Prediction)
    assert report.game.prediction.agrees
    assert report.game.prediction.keeps
    described = plain(document(report))
    assert 0 < described["epsilon_lower_bound"] <= report.game.game.epsilon <= described["epsilon"]
    assert described["confidence"] == 1 - 1e-6
    assert verdict(report, CLAIMS[3]).outcome is Outcome.IN_NAME
    assert "the distinguishing game proves ε ≥" in verdict(report, CLAIMS[3]).evidence
    page = render(report)
    assert "Telling two objectives apart" in page
    assert "What the run costs" in page


def test_without_dp_accounting_the_report_says_what_is_missing(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.privacy_loss_distribution", None)
    monkeypatch.setattr(contests, "_MOST_TRIALS", 2_000)
    report = audit(make_run(), ATTACKS[:1])
    assert isinstance(report.game, GameResult)
    assert isinstance(report.game.prediction, Unsupported)
    reason = "needs the package: pip install dp-accounting"
    assert plain(document(report))["game"]["reason"] == reason
    assert f"No predicted curve: {reason}." in render(report)  # a remark, not an error
    assert report.game.bound.value > 0


def test_a_run_that_diverged_can_be_audited(make_run: MakeRun) -> None:
    run = make_run(
        network__agents=3,
        problem__name="quadratic",
        problem__curvature=[-1.0, -1.0, 3.0],
        noise__u_w=0.0,
        noise__u_e=0.0,
        run__rounds=3000,
    )
    report = audit(run, QUICK, game=False)
    assert 0 < report.cost.rounds < 3000
    assert verdict(report, CLAIMS[0]).outcome is Outcome.BROKEN
    assert "What was sent" in render(report)


def test_runs_without_noise_or_bound_get_a_sentence_in_place_of_a_game(make_run: MakeRun) -> None:
    bare = audit(make_run(noise__u_w=0.0, noise__u_e=0.0), ATTACKS[:1])
    assert isinstance(bare.game, Unsupported)
    assert "told apart with certainty" in plain(document(bare))["game"]["reason"]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda run: (run / "observation.npz").unlink(), "a finished run"),
        (lambda run: (run / "observation.npz").write_bytes(b"no archive"), "an intact observation"),
        (lambda run: (run / "truth.npz").write_bytes(b"no archive"), "intact truth"),
        (lambda run: (run / "privacy.json").write_text("{"), r"intact privacy\.json"),
    ],
)
def test_damaged_runs_are_refused_in_one_sentence(
    make_run: MakeRun, tmp_path: Path, spoil: Callable[[Path], object], sentence: str
) -> None:
    run = _copied(make_run(), tmp_path)
    spoil(run)
    with pytest.raises(BadInput, match=sentence):
        audit(run, QUICK, game=False)


def test_unknown_attackers_and_agents_are_refused(make_run: MakeRun) -> None:
    with pytest.raises(BadInput, match="one of global, local, neighbour, partial"):
        Attacker("nosy")
    with pytest.raises(BadInput, match="agent = 99"):
        audit(make_run(), QUICK, Attacker("local", 99), game=False)


def _copied(run: Path, to: Path) -> Path:
    copy = to / "run"
    copy.mkdir()
    for file in run.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    return copy
