"""`dpp2 privacy epsilon | calibrate | check` answer what the accountant says, to the last bit."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpp2 import Experiment, Simulation
from dpp2.privacy import (
    Dpp2Releases,
    Epsilon,
    PrivacyProfile,
    epsilon,
    per_round,
    profile,
    publish_term,
    theorem_3,
)
from tests.answers import number

Call = Callable[..., Any]
PAPER_FILE = Path(__file__).parents[2] / "experiments/paper.toml"
PAPER = Dpp2Releases(dimension=10, alpha=0.1, smoothness=5.03, adjacency=0.1, u_e=1.0, u_w=1.0, decay=0.9, bits=20)
OPTIONS = {
    "dimension": 3,
    "alpha": 0.2,
    "smoothness": 4.0,
    "adjacency": 0.05,
    "u_e": 4.0,
    "u_w": 2.0,
    "decay": 0.97,
}
CHOSEN = Dpp2Releases(**OPTIONS, bits=20)  # type: ignore[arg-type]


def typed(options: dict[str, float], **more: object) -> list[str]:
    return [word for name, value in {**options, **more}.items() for word in (f"--{name.replace('_', '-')}", str(value))]


Ask = Callable[..., dict[str, Any]]


class TestEpsilon:
    def test_options_alone(self, ask: Ask) -> None:
        found = ask("epsilon", *typed(OPTIONS, rounds=40))
        assert found["epsilon"] == number(epsilon(CHOSEN, 40))
        assert found["log10_epsilon"] == pytest.approx(math.log10(found["epsilon"]), abs=1e-14)
        assert found["paper_epsilon"] == number(theorem_3(CHOSEN, 40))
        assert (found["rounds"], found["reason"], found["paper_reason"]) == (40, None, None)
        assert len(found["per_round"]) == 40
        assert math.fsum(found["per_round"]) == pytest.approx(found["epsilon"], rel=1e-14)

    def test_without_options_it_is_the_paper(self, ask: Ask) -> None:
        found = ask("epsilon")
        assert (found["rounds"], found["epsilon"]) == (500, number(epsilon(PAPER, 500)))

    @pytest.mark.parametrize("name", OPTIONS)
    def test_each_option_alone(self, name: str, ask: Ask) -> None:
        found = ask("epsilon", *typed({name: OPTIONS[name]}, rounds=20))
        assert found["epsilon"] == number(epsilon(replace(PAPER, **{name: OPTIONS[name]}), 20))  # type: ignore[arg-type]

    def test_an_experiment_file(self, ask: Ask) -> None:
        account = Simulation(Experiment.load(PAPER_FILE), record=False).account
        found = ask("epsilon", PAPER_FILE)
        assert (found["rounds"], found["epsilon"]) == (500, number(account.epsilon(500)))
        assert found["paper_epsilon"] == number(account.paper_epsilon(500))
        assert found["epsilon"] == pytest.approx(number(epsilon(PAPER, 500)), rel=1e-12)  # M̄ is tuned to 5.03

    def test_overrides_and_options_on_top_of_a_file(self, ask: Ask) -> None:
        found = ask(
            "epsilon", PAPER_FILE, "--set", "noise.decay=0.99", "--u-e", "3", "--smoothness", "6", "--rounds", 9
        )
        expected = replace(PAPER, decay=0.99, u_e=3.0, smoothness=6.0)
        assert (found["rounds"], found["epsilon"]) == (9, number(epsilon(expected, 9)))

    def test_a_file_is_not_contradicted_by_its_own_damping(self, ask: Ask) -> None:
        damped = ask("epsilon", PAPER_FILE, "--set", "algorithm.damping=1.0")
        assert damped == ask("epsilon", PAPER_FILE)

    @pytest.mark.parametrize("rounds", [3, 30])
    def test_agents_that_differ_are_answered_for_the_worst(self, rounds: int, ask: Ask, small: list[str]) -> None:
        """One has little noise that lasts, the others much that fades: who is worst off depends on the rounds."""
        lists = ("noise.u_e=[0.1, 1, 1, 1, 1]", "noise.u_w=[0.1, 1, 1, 1, 1]", "noise.decay=[1, 0.5, 0.5, 0.5, 0.5]")
        sets = [*small, *(word for text in lists for word in ("--set", text))]
        words, overrides = [*sets, "--rounds", rounds], sets[1::2]
        account = Simulation(Experiment.load(overrides=overrides), record=False).account
        spent = [number(epsilon(mechanism, rounds)) for mechanism in account.mechanisms]
        assert (np.argmax(spent) == 0) == (rounds == 3)
        found = ask("epsilon", *words)
        assert found["epsilon"] == max(spent)
        assert math.fsum(found["per_round"]) == pytest.approx(max(spent), rel=1e-14)

    def test_beyond_float64_only_the_logarithm_is_left(self, ask: Ask) -> None:
        found = ask("epsilon", "--rounds", 5000, "--decay", 0.5)
        exact = epsilon(replace(PAPER, decay=0.5), 5000)
        costs = per_round(replace(PAPER, decay=0.5), 5000)
        assert isinstance(exact, Epsilon)
        assert (found["epsilon"], found["paper_epsilon"]) == (None, None)
        assert found["log10_epsilon"] == exact.log10
        assert 1504 < found["log10_epsilon"] < found["paper_log10_epsilon"]
        assert "beyond float64" in found["reason"]
        finite = np.isfinite(costs.values)  # type: ignore[union-attr]
        assert [cost is not None for cost in found["per_round"]] == finite.tolist()
        assert 0 < finite.sum() < 5000

    @pytest.mark.parametrize(
        ("option", "why", "first"),
        [
            (("--u-e", 0), "u_e = 0", False),
            (("--u-w", 0), "u_w = 0", True),
            (("--decay", 0), "decay = 0", True),
        ],
    )
    def test_no_noise_no_number(self, option: tuple[str, int], why: str, first: bool, ask: Ask, dpp2: Call) -> None:
        found = ask("epsilon", *option, "--rounds", 3)
        assert (found["epsilon"], found["log10_epsilon"], found["paper_epsilon"]) == (None, None, None)
        assert why in found["reason"]
        assert "needs u_e, u_w and the decay above 0" in found["paper_reason"]
        assert [cost is not None for cost in found["per_round"]] == [first, False, False]
        assert (ask("epsilon", *option, "--rounds", 1)["epsilon"] is not None) == first
        assert f"= ∞ ({why}" in dpp2("privacy", "epsilon", *option, "--rounds", 3).out

    def test_outside_the_theory_it_is_unsupported(self, ask: Ask) -> None:
        found = ask("epsilon", "--smoothness", "inf", "--rounds", 3)
        assert [found[key] for key in ("epsilon", "log10_epsilon", "per_round")] == [None, None, None]
        assert found["reason"].startswith("unsupported, because the gradient needs a finite Lipschitz bound")

    def test_publishing_adds_its_term(self, ask: Ask) -> None:
        found = ask("epsilon", *typed(OPTIONS, rounds=40), "--published")
        assert found["epsilon"] == number(epsilon(CHOSEN, 40, published=True))
        rest = found["epsilon"] - math.fsum(found["per_round"])
        assert rest == pytest.approx(number(publish_term(CHOSEN, 40)), rel=1e-10)

    @pytest.mark.parametrize("published", [False, True])
    def test_delta_gives_the_smaller_of_pld_and_pure(self, published: bool, ask: Ask) -> None:
        quiet = {"u_e": 5.0, "u_w": 5.0, "decay": 1.0}
        found = ask("epsilon", *typed(quiet, rounds=8, delta=1e-2), *(["--published"] if published else []))
        exact = profile(replace(PAPER, **quiet), 8, published=published)  # type: ignore[arg-type]
        assert isinstance(exact, PrivacyProfile)
        assert found["delta"] == 1e-2
        assert found["epsilon_at_delta"] == exact.epsilon(1e-2) < 0.8 * found["epsilon"]
        assert found["delta_reason"] is None

    def test_delta_too_small_to_help_gives_the_pure_sum(self, ask: Ask) -> None:
        found = ask("epsilon", "--rounds", 1, "--delta", 1e-14)
        assert found["epsilon_at_delta"] == pytest.approx(found["epsilon"], rel=1e-12)
        assert found["epsilon_at_delta"] <= found["epsilon"]

    @pytest.mark.parametrize("option", [("--decay", 0.9), ("--u-e", 0)])
    def test_above_a_hundred_pure_only(self, option: tuple[str, float], ask: Ask, dpp2: Call) -> None:
        found = ask("epsilon", "--rounds", 500, *option, "--delta", 1e-5)
        assert found["epsilon_at_delta"] is None
        assert found["delta_reason"].startswith("pure ε only, because the pure sum is")
        said = dpp2("privacy", "epsilon", "--rounds", 500, *option, "--delta", 1e-5).out
        assert "(ε, δ)-privacy at δ = 1e-05: pure ε only, because" in said

    def test_plot(self, tmp_path: Path, dpp2: Call) -> None:
        ended = dpp2("privacy", "epsilon", "--rounds", 30, "--plot", tmp_path / "curve.png")
        assert ended.code == 0
        assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
        assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]

    def test_text(self, dpp2: Call) -> None:
        ended = dpp2("privacy", "epsilon", *typed(OPTIONS, rounds=40))
        ours, paper = number(epsilon(CHOSEN, 40)), number(theorem_3(CHOSEN, 40))
        assert f"ε(40 rounds) = {ours:.6g}\n" in ended.out
        assert f"with noise on a grid of 20 bits: (ε, δ_dp) = ({ours:.6g}, 2^−71)" in ended.out
        doubles = dpp2("privacy", "epsilon", *typed(OPTIONS, rounds=40, grid=0))
        assert f"ε(40 rounds) = {number(epsilon(replace(CHOSEN, bits=0), 40)):.6g}\n" in doubles.out
        assert "δ_dp" not in doubles.out
        assert f"the paper's Theorem 3 says {paper:.6g} — a claim, not a guarantee" in ended.out
        assert ended.err == ""

    def test_a_file_that_voids_it_says_so(self, dpp2: Call) -> None:
        assert "note: experiment: no ε holds" in dpp2("privacy", "epsilon", PAPER_FILE).err

    def test_a_million_rounds(self, ask: Ask) -> None:
        began = time.process_time()
        found = ask("epsilon", "--rounds", 1_000_000, "--decay", 1)
        assert time.process_time() - began < 8
        assert found["epsilon"] == number(epsilon(replace(PAPER, decay=1.0), 1_000_000))
        assert len(found["per_round"]) == 1_000_000


class TestCalibrate:
    FREE = {  # noqa: RUF012
        "decay": {"u_e": 40.0, "u_w": 10.0},
        "scale": {"u_e": 3.0, "u_w": 2.0, "decay": 0.98},
        "rounds": {"u_e": 40.0, "u_w": 10.0, "decay": 0.999},
    }

    @pytest.mark.parametrize("published", [False, True])
    @pytest.mark.parametrize("solve", ["decay", "scale", "rounds"])
    @pytest.mark.parametrize("budget", [1.7, 25.0])
    def test_the_answer_fed_back_keeps_the_budget(self, solve: str, budget: float, published: bool, ask: Ask) -> None:
        given = {**self.FREE[solve], "rounds": 60}
        extra = ["--published"] if published else []
        found = ask("calibrate", "--epsilon", budget, "--solve", solve, *typed(given), *extra)
        keys = {"decay": ["decay"], "scale": ["u_e", "u_w"], "rounds": ["rounds"]}[solve]
        answer = given | {key: found[key] for key in keys}
        spent = ask("epsilon", *typed(answer), *extra)
        assert (found["feasible"], found["reason"]) == (True, None)
        assert spent["epsilon"] == found["epsilon"] <= budget
        assert spent["per_round"] == found["per_round"]
        if solve == "rounds":
            longer = ask("epsilon", *typed(answer | {"rounds": answer["rounds"] + 1}), *extra)
            assert longer["epsilon"] > budget
        else:
            assert found["epsilon"] >= budget * (1 - 1e-9)
        if solve == "scale":
            assert found["u_e"] / given["u_e"] == pytest.approx(found["factor"], rel=1e-15)
            assert found["u_w"] / given["u_w"] == pytest.approx(found["factor"], rel=1e-15)

    @pytest.mark.parametrize("solve", ["decay", "scale"])
    def test_the_printed_answer_can_be_typed_in_again(self, solve: str, ask: Ask, dpp2: Call) -> None:
        given = {**self.FREE[solve], "rounds": 60}
        words = dpp2("privacy", "calibrate", "--epsilon", 5, "--solve", solve, *typed(given)).out.split(":")[0].split()
        printed = dict(zip(words[::3], words[1::3], strict=True))
        assert printed.keys() == ({"decay"} if solve == "decay" else {"u_e", "u_w"})
        spent = ask("epsilon", *typed(given | {key: float(text) for key, text in printed.items()}))["epsilon"]
        assert 5 * (1 - 1e-9) <= spent <= 5

    @pytest.mark.parametrize(
        ("solve", "options", "smallest"),
        [
            ("decay", {"rounds": 100}, number(epsilon(replace(PAPER, decay=1.0), 100))),
            ("rounds", {}, number(epsilon(PAPER, 1))),
            ("scale", {"rounds": 3, "u_e": 0}, None),
        ],
    )
    def test_infeasible_is_an_answer(
        self, solve: str, options: dict[str, float], smallest: float | None, ask: Ask, dpp2: Call
    ) -> None:
        words = ("calibrate", "--epsilon", 1e-3, "--solve", solve, *typed(options))
        found = ask(*words)
        assert (found["feasible"], found["epsilon"]) == (False, smallest)
        quoted = f"ε = {smallest:.10g}, the smallest that is feasible" if smallest else "the smallest ε is ∞"
        assert quoted in found["reason"]
        assert dpp2("privacy", *words).out == f"infeasible, because {found['reason']}\n"

    def test_beside_the_decay_stands_what_the_paper_would_take(self, dpp2: Call) -> None:
        """Corollary 1 promises its budget and does not keep it."""
        said = dpp2(
            "privacy", "calibrate", "--epsilon", 30, "--rounds", 100, "--u-e", 3, "--u-w", 3, "--solve", "decay"
        ).out
        spends = float(said.rpartition("really spends ")[2])
        assert "Corollary 1 would take 0.9" in said
        assert spends > 30

    def test_every_agent_keeps_the_budget(self, ask: Ask, small: list[str]) -> None:
        """A common factor, decay or number of rounds that is right for one agent may be wrong for another."""
        lists = ("noise.u_e=[1, 8, 8, 8, 8]", "noise.u_w=[1, 8, 8, 8, 8]", "noise.decay=[1, 0.8, 0.8, 0.8, 0.8]")
        sets = [*small, *(word for text in lists for word in ("--set", text))]
        agents = Simulation(Experiment.load(overrides=sets[1::2]), record=False).account.mechanisms
        for budget, rounds in ((2.0, 4), (2.0, 40)):
            found = ask("calibrate", "--epsilon", budget, "--solve", "scale", *sets, "--rounds", rounds)
            scaled = [m.changed(**{u: getattr(m, u) * found["factor"] for u in m.scales}) for m in agents]
            spent = max(number(epsilon(m, rounds)) for m in scaled)
            assert budget * (1 - 1e-9) <= spent <= budget
            found = ask("calibrate", "--epsilon", budget, "--solve", "rounds", *sets)
            assert max(number(epsilon(m, found["rounds"])) for m in agents) <= budget
            assert max(number(epsilon(m, found["rounds"] + 1)) for m in agents) > budget


class TestCheck:
    def test_paper(self, ask: Ask) -> None:
        found = ask("check", PAPER_FILE)
        account = Simulation(Experiment.load(PAPER_FILE), record=False).account
        assert (found["admissible"], found["reason"], found["rounds"]) == (True, None, 500)
        assert len(found["conditions"]) == 9
        assert all(condition.keys() == {"name", "left", "right", "holds"} for condition in found["conditions"])
        assert [c["holds"] for c in found["conditions"]].count(False) > 0  # sufficient, not necessary
        assert found["epsilon"] == found["curve"][-1] == number(account.epsilon(500))
        assert found["curve"] == account.curve(500).values.tolist()  # type: ignore[union-attr]
        np.testing.assert_allclose(np.cumsum(found["per_round"]), found["curve"], rtol=1e-12)
        np.testing.assert_allclose(np.log10(found["curve"]), found["log10_curve"], atol=1e-12)
        assert any(note.startswith("experiment: no ε holds") for note in found["notes"])

    def test_text(self, dpp2: Call, tmp_path: Path) -> None:
        ended = dpp2("privacy", "check", PAPER_FILE, "--plot", tmp_path / "curve.png")
        assert ended.code == 0
        assert ended.out.startswith("admissible: ")
        assert "\nconvergence is not proved: 6 of the paper's 9 sufficient conditions fail" in ended.out
        assert "holds" in ended.out
        assert "4.76457e+23" in ended.out
        assert "note: experiment: no ε holds" in ended.err
        assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")

    def test_what_is_the_same_for_every_number_of_rounds_is_said_once(self, dpp2: Call) -> None:
        told = dpp2("privacy", "check", "tier-three").out
        assert told.count("the paper accounts for its own algorithm only") == 1
        assert "sufficient conditions" not in told  # they are about DPP²
        bare = dpp2("privacy", "check", "counterexample").out
        assert bare.count("u_e = 0: every z message carries a bare gradient") == 1

    def test_without_a_file_it_is_the_papers_experiment(self, dpp2: Call) -> None:
        assert dpp2("privacy", "check").out == dpp2("privacy", "check", "paper").out

    def test_inadmissible_is_an_answer_and_its_exit_code_says_so(self, dpp2: Call) -> None:
        words = ("privacy", "check", PAPER_FILE, "--set", "algorithm.beta=0.9")
        ended = dpp2(*words, "--json")
        found = json.loads(ended.out)
        assert (ended.code, ended.err, found["admissible"]) == (1, "", False)
        assert found["reason"].startswith("algorithm.beta = 0.9: expected ")
        plain = dpp2(*words)
        assert (plain.code, plain.out) == (1, f"not admissible: {found['reason']}\n")

    def test_nothing_but_an_account(self, ask: Ask, tmp_path: Path) -> None:
        """An objective without a known smoothness has no ε, and nothing proves anything about it."""
        (tmp_path / "own.py").write_text(
            "class Bowl:\n"
            "    dimension = 2\n"
            "    def value(self, x): return float(x @ x) / 2\n"
            "    def gradient(self, x): return x\n"
            "def objective(agent, agents): return Bowl()\n"
        )
        (tmp_path / "own.toml").write_text('[problem]\nname = "file"\npath = "own.py"\n')
        found = ask("check", tmp_path / "own.toml")
        assert [found[key] for key in ("epsilon", "curve", "per_round", "conditions")] == [None, None, None, []]
        assert found["reason"] == "unsupported, because no bound M_i is known: declare privacy.smoothness"
        assert found["admissible"] is True
        assert ask("epsilon", tmp_path / "own.toml")["epsilon"] is None
        bounded = ask("epsilon", tmp_path / "own.toml", "--smoothness", 3, "--rounds", 9)["epsilon"]
        assert bounded == number(epsilon(replace(PAPER, dimension=2, smoothness=3.0), 9))


BAD_OPTIONS = [
    ("--rounds 0", "--rounds = 0: expected a whole number from 1 to 10,000,000"),
    ("--rounds -3", "--rounds = -3: expected a whole number from 1"),
    ("--rounds 10000001", "--rounds = 10000001: expected a whole number from 1 to 10,000,000"),
    ("--rounds 1.5", "--rounds = '1.5': expected a whole number"),
    ("--rounds many", "--rounds = 'many': expected a whole number"),
    ("--dimension 0", "--dimension = 0: expected a whole number ≥ 1"),
    ("--dimension -1", "--dimension = -1"),
    ("--alpha 0", "--alpha = 0.0: expected a finite number > 0"),
    ("--alpha -0.1", "--alpha = -0.1"),
    ("--alpha nan", "--alpha = nan"),
    ("--alpha inf", "--alpha = inf"),
    ("--smoothness 0", "--smoothness = 0.0: expected a number > 0"),
    ("--smoothness -1", "--smoothness = -1.0"),
    ("--smoothness nan", "--smoothness = nan"),
    ("--adjacency 0", "--adjacency = 0.0: expected a number > 0"),
    ("--adjacency -1", "--adjacency = -1.0"),
    ("--adjacency nan", "--adjacency = nan"),
    ("--u-e -1", "--u-e = -1.0: expected a finite number ≥ 0"),
    ("--u-e nan", "--u-e = nan"),
    ("--u-e inf", "--u-e = inf"),
    ("--u-w -1", "--u-w = -1.0: expected a finite number ≥ 0"),
    ("--u-w nan", "--u-w = nan"),
    ("--decay 1.5", "--decay = 1.5: expected a number in [0, 1]"),
    ("--decay -0.1", "--decay = -0.1"),
    ("--decay nan", "--decay = nan"),
    ("missing.toml", "FILE = 'missing.toml': expected a readable TOML file"),
    ("--set privacy.budgett=3", "privacy.budgett = 3: expected a known key"),
    ("--set privacy.budget=0", "privacy.budget = 0: expected a number > 0"),
    ("--set privacy.budget=-1", "privacy.budget = -1"),
    ("--set privacy.budget=nan", "privacy.budget = nan"),
    ("--set privacy.budget=many", "privacy.budget = 'many'"),
    ("--set privacy.adjacency=0", 'privacy.adjacency = 0: expected a number > 0, or "record"'),
    ("--set privacy.adjacency=records", "privacy.adjacency = 'records': expected a number > 0, or \"record\""),
    ("--set privacy.adjacency=record", "privacy.feature_bound = None: expected a number > 0, which adjacency"),
    ("--set privacy.feature_bound=1", 'privacy.feature_bound = 1.0: expected adjacency = "record" beside it'),
    ("--set privacy.adjacency=record --set privacy.feature_bound=-1", "privacy.feature_bound = -1: expected a number"),
    (
        "--set privacy.adjacency=record --set privacy.feature_bound=1 --set problem.name=least-squares",
        "privacy.adjacency = 'record': expected a number: the least-squares problem cannot bound",
    ),
    ("--set privacy.clip=1", 'privacy.clip = 1.0: expected adjacency = "record" beside it'),
    (
        "--set privacy.adjacency=record --set privacy.clip=1",
        "privacy.clip = 1.0: expected nothing: the account of dpp2 needs a bound M on curvature, which clipping does",
    ),
    ("--set privacy.smoothness=0", "privacy.smoothness = 0: expected a number > 0"),
    ("--set privacy.smoothness=5.02", "privacy.smoothness = 5.02: expected a bound that the data keep, but agent "),
    ("--set privacy=3", "privacy"),
]  # fmt: skip
EPSILON_ONLY = [
    ("--delta 0", "--delta = 0.0: expected a number in (0, 1)"),
    ("--delta 1", "--delta = 1.0"),
    ("--delta nan", "--delta = nan"),
    ("--plot nowhere/curve.png", "--plot = 'nowhere/curve.png': expected a file in a directory that exists"),
    ("--plot .", "--plot = '.': expected a file"),
    ("--solve decay", "privacy epsilon has no option --solve; dpp2 privacy calibrate has it"),
]
CALIBRATE_ONLY = [
    ("--epsilon 5", "privacy calibrate needs --solve NAME"),
    ("--solve decay", "privacy calibrate needs --epsilon X"),
    ("", "privacy calibrate needs --epsilon X"),
    ("--epsilon 5 --solve nonsense", "--solve = 'nonsense': expected decay, scale or rounds"),
    ("--epsilon 5 --solve Decay", "--solve = 'Decay'"),
    ("--epsilon 0 --solve scale", "--epsilon = 0.0: expected a finite number > 0"),
    ("--epsilon -1 --solve scale", "--epsilon = -1.0"),
    ("--epsilon nan --solve decay", "--epsilon = nan"),
    ("--epsilon inf --solve rounds", "--epsilon = inf"),
    ("--epsilon much --solve rounds", "--epsilon = 'much': expected a number"),
    ("--epsilon 5 --solve scale --smoothness inf", "needs a finite Lipschitz bound, and smoothness is inf"),
]


def refused(dpp2: Call, *words: object) -> str:
    ended = dpp2("privacy", *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("dpp2: ")
    assert (ended.err.count("\n"), ended.err[-1]) == (1, "\n")
    return str(ended.err)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory: nothing is left there by a command that was refused."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestBadInput:
    @pytest.mark.parametrize(("line", "sentence"), BAD_OPTIONS + EPSILON_ONLY)
    def test_epsilon(self, line: str, sentence: str, empty: Path, dpp2: Call) -> None:
        assert sentence in refused(dpp2, "epsilon", *line.split())
        assert not list(empty.iterdir())

    @pytest.mark.parametrize(
        ("line", "sentence"),
        [(f"--epsilon 5 --solve scale {line}", sentence) for line, sentence in BAD_OPTIONS[::3]] + CALIBRATE_ONLY,
    )
    def test_calibrate(self, line: str, sentence: str, empty: Path, dpp2: Call) -> None:
        assert sentence in refused(dpp2, "calibrate", *line.split(), "--json")

    @pytest.mark.parametrize(
        ("line", "sentence"),
        [
            *(row for row in BAD_OPTIONS if row[0].startswith("--set privacy.") and "problem" not in row[0]),
            ("--set noise.u_e=-1", "noise.u_e = -1"),
            ("--plot nowhere/curve.png", "--plot = 'nowhere/curve.png'"),
        ],
    )
    def test_check(self, line: str, sentence: str, empty: Path, dpp2: Call) -> None:
        assert sentence in refused(dpp2, "check", PAPER_FILE, *line.split(), "--json")

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("", "expected at least one section"),
            ("[privacy", "expected valid TOML"),
            ("[privacy]\nepsilon = 3\n", "privacy.epsilon = 3: expected a known key: one of adjacency, budget"),
            ("privacy = 3\n", "privacy = 3: expected a table of keys and values"),
            ('[privacy]\nadjacency = "records"\n', "privacy.adjacency = 'records'"),
            ("[secrecy]\n", "section = 'secrecy': expected one of"),
        ],
    )
    def test_malformed_file(self, text: str, sentence: str, empty: Path, dpp2: Call) -> None:
        (empty / "bad.toml").write_text(text)
        for command in (("check",), ("epsilon",), ("calibrate", "--epsilon", 5, "--solve", "scale")):
            assert sentence in refused(dpp2, *command, "bad.toml")

    def test_nothing_given(self, dpp2: Call) -> None:
        assert "privacy publish needs RUN: a run directory" in refused(dpp2, "publish")

    def test_publish_what_is_no_run(self, empty: Path, dpp2: Call) -> None:
        (empty / "file").write_text("a file")
        (empty / "folder").mkdir()
        (empty / "odd").mkdir()
        (empty / "odd/experiment.toml").write_text("[run]\nrounds = -1\n")
        for name in ("file", "folder", "missing"):
            assert f"RUN = '{name}': expected a run directory" in refused(dpp2, "publish", name)
        assert "run.rounds = -1" in refused(dpp2, "publish", "odd")
        assert sorted(path.name for path in empty.rglob("*")) == ["experiment.toml", "file", "folder", "odd"]

    def test_publish_a_run_that_never_began(self, empty: Path, dpp2: Call) -> None:
        (empty / "run").mkdir()
        (empty / "run/experiment.toml").write_text("[run]\nrounds = 3\n")
        assert "expected a run of at least one round" in refused(dpp2, "publish", "run")


@pytest.mark.slow
@pytest.mark.parametrize(("option", "planned_on"), [((), "surrogate"), (("--on-data",), "data")])
def test_a_plan_says_what_it_was_planned_on(
    dpp2: Call, tmp_path: Path, option: tuple[str, ...], planned_on: str
) -> None:
    small = ("network.topology=ring", "network.agents=4", "problem.name=sine", "problem.dimension=1", "run.rounds=4")
    settings = [word for one in small for word in ("--set", one)]
    ended = dpp2(
        "privacy", "plan", "--epsilon", 10, *settings, "--trials", 0, *option, "--json", "--out", tmp_path / "f.png"
    )
    document = json.loads(ended.out)
    assert document["planned_on"] == planned_on
    assert ("looking at the data" in document["notes"][0]) == (planned_on == "data")
    assert document["epsilon"] <= 10
    assert {"alpha", "beta", "rho", "u_e", "u_w"} <= set(document)
