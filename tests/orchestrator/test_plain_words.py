"""Sentences that name what was typed, folders that are looked at before the work, and notes that are said once."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dpp2 import BadInput
from dpp2.node.__main__ import _listening, main
from dpp2.orchestrator.cli.plan import command
from dpp2.orchestrator.output import print_notes
from dpp2.privacy.plans import Plan
from dpp2.studies.reproduce.curves import FIG1, CurveStudy
from dpp2.studies.reproduce.study import Claim

Call = Callable[..., Any]


class TestSentences:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (("orchestrate", "--cluster", "c", "--experiment", "e"), "--tls = nothing: expected a folder of"),
            (("run", "--tap", "relay"), "--tap = 'relay': expected --transport grpc beside it"),
            (("run", "--tls"), "--tls = True: expected --transport grpc beside it"),
            (("run", "--transport=grpc", "--processes=1", "--tap=relay"), "--processes = 1: expected at least 2"),
            (("certs",), "--cluster = nothing: expected either a cluster.toml or --agents N"),
            (("audit", "here", "--agent", "3"), "RUN = 'here': expected a run directory"),
        ],
    )
    def test_name_what_was_typed(self, dpp2: Call, words: tuple[str, ...], sentence: str) -> None:
        ended = dpp2(*words)
        assert ended.code == 2
        assert sentence in ended.err
        assert len(ended.err.splitlines()) == 1

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ("run paper --rounds 100", "run has no option --rounds; did you mean --set run.rounds=100?"),
            ("run --rounds=100 paper", "run has no option --rounds; did you mean --set run.rounds=100?"),
            ("run --rounds", "run has no option --rounds; did you mean --set run.rounds=VALUE?"),
            ("run --u-e 3", "run has no option --u-e; did you mean --set noise.u_e=3?"),
            ("run --epsilon 1", "run has no option --epsilon; did you mean --set privacy.budget=1?"),
            ("run --ouut x", "run has no option --ouut; did you mean --out?"),
            ("reproduce fig1 --seed 3", "reproduce has no option --seed; did you mean --seeds?"),
            ("run --attacker local", "run has no option --attacker; dpp2 audit has it"),
            ("privacy check --delta 1", "privacy check has no option --delta; did you mean --set privacy.delta=1?"),
            ("privacy ledger --rounds 3", "privacy ledger has no option --rounds; dpp2 reproduce and dpp2 privacy eps"),
            ("run -x", "run has no option -x (--help shows what is accepted)"),
            ("run --set rounds=100", "--set = 'rounds': expected section.key=value (did you mean run.rounds?)"),
            ("run --set colour=red", "--set = 'colour': expected section.key=value\n"),
        ],
    )
    def test_an_option_of_elsewhere_is_met_with_what_does_it(self, dpp2: Call, words: str, sentence: str) -> None:
        ended = dpp2(*words.split())
        assert ended.code == 2
        assert ended.err.startswith(f"dpp2: {sentence}")
        assert len(ended.err.splitlines()) == 1

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ("collect here", "collect needs --experiment FILE: the experiment (TOML)"),
            ("audit", "audit needs RUN: a run directory"),
            ("audit here --agent x", "--agent = 'x': expected a whole number"),
            ("run --transport grpc --processes 1.5", "--processes = '1.5': expected a whole number"),
            ("privacy epsilon --decay fast", "--decay = 'fast': expected a number"),
            ("tap sniff --port x --out y", "--port = 'x': expected a whole number"),
            ("run paper twice", "'twice' is too much: run takes FILE (--help shows what is accepted)"),
            ("compose six", "'six' is too much: compose takes options only (--help shows what is accepted)"),
        ],
    )
    def test_a_word_that_is_missing_wrong_or_too_much_is_named(self, dpp2: Call, words: str, sentence: str) -> None:
        ended = dpp2(*words.split())
        assert ended.code == 2
        assert ended.err == f"dpp2: {sentence}\n"

    def test_certificates_that_are_there_already_are_said_to_be_kept(self, dpp2: Call, tmp_path: Path) -> None:
        for said in ("3 certificates in ", "nothing to make: "):
            assert dpp2("certs", "--agents", 1, "--out", tmp_path / "certs").out.startswith(said)

    def test_a_cluster_file_with_other_tables_is_named(self, dpp2: Call, tmp_path: Path) -> None:
        (tmp_path / "paper.toml").write_text("[run]\nrounds = 3\n")
        ended = dpp2("certs", "--cluster", tmp_path / "paper.toml", "--out", tmp_path / "certs")
        assert "the tables [agents], [hosts] and [links], and no run" in ended.err


class TestFolders:
    @pytest.mark.parametrize(
        "words",
        [
            ("matrix", "--out"),
            ("reproduce", "fig1", "--out"),
            ("privacy", "plan", "--epsilon", "10", "--out"),
            ("compare", "--quick", "--out"),
        ],
    )
    def test_are_looked_at_before_the_work(
        self, dpp2: Call, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._no_work(monkeypatch)
        (tmp_path / "file").write_text("mine")
        ended = dpp2(*words, tmp_path / "file" / "below" / "x.png")
        assert ended.code == 2
        assert "--out = " in ended.err
        assert "is a file" in ended.err

    @pytest.mark.parametrize(
        "words",
        [("matrix", "--out"), ("reproduce", "fig1", "--out"), ("compare", "--quick", "--out"), ("init",)],
    )
    def test_that_no_file_can_be_made_in_are_refused(
        self, dpp2: Call, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """/proc: its permissions would let root write."""
        self._no_work(monkeypatch)
        ended = dpp2(*words, "/proc/mine")
        assert ended.code == 2
        assert "expected a directory that can be written (/proc: " in ended.err

    @staticmethod
    def _no_work(monkeypatch: pytest.MonkeyPatch) -> None:
        def work(*_: object, **__: object) -> None:
            raise AssertionError("the work had begun")

        for place in ("matrix.compare", "reproduce.curves.fan_out", "compare.comparison.compare"):
            monkeypatch.setattr(f"dpp2.studies.{place}", work)
        monkeypatch.setattr("dpp2.privacy.plan.planner", work)


def test_notes_are_said_once_and_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    print_notes(["a", "b", "a", "c"])
    assert capsys.readouterr().err == "note: a\nnote: b\nnote: c\n"


@pytest.mark.usefixtures("quick_plot")
def test_why_epsilon_is_infinite_is_the_last_note_and_the_only_one_of_its_kind(dpp2: Call, tmp_path: Path) -> None:
    words = ["--set", "network.agents=4", "--set", "network.topology=ring", "--set", "run.rounds=400"]
    notes = dpp2("run", *words, "--out", tmp_path / "run").err.splitlines()
    assert notes[-1].startswith("note: ε = ∞: ")
    assert sum("float64" in note for note in notes) == 1


class TestPlan:
    PLAN = Plan(9.0, 40, 0.98, 3.0, 2.0, 1.0, 0.1, 0.05, 10.0, 1.0, None, None, None)

    def test_the_command_runs_the_experiment_that_was_planned(self) -> None:
        given = ["network.topology=ring", "noise.u_e=7", "a.b=[1, 2]"]
        words = shlex.split(command(self.PLAN, Path("my file.toml"), given))
        assert words[:3] == ["dpp2", "run", "my file.toml"]
        sets = [second for first, second in pairwise(words) if first == "--set"]
        assert sets[:2] == ["network.topology=ring", "a.b=[1, 2]"]
        assert "noise.u_e=3.0" in sets
        assert "noise.u_e=7" not in sets

    def test_without_a_file_it_is_the_papers(self) -> None:
        assert command(self.PLAN, None, []).startswith("dpp2 run --set run.rounds=40 ")


class TestFewRounds:
    CLAIMS = (Claim("it converges", False, "not within 100 rounds"),)

    def test_are_not_judged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(CurveStudy, "judge", lambda self, made: TestFewRounds.CLAIMS)
        (short,) = FIG1.of(100).claims(None)  # type: ignore[arg-type]  # nobody looks at it
        assert (short.word, short.held) == ("not judged", None)
        assert short.evidence == f"100 of the {FIG1.rounds} rounds that it takes were run: not within 100 rounds"

    def test_enough_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(CurveStudy, "judge", lambda self, made: TestFewRounds.CLAIMS)
        for rounds in (None, FIG1.rounds, FIG1.rounds + 1):
            assert [claim.word for claim in FIG1.of(rounds).claims(None)] == ["DID NOT HOLD"]  # type: ignore[arg-type]


class TestNode:
    CLUSTER = '[agents]\n0 = "10.0.0.1:7100"\n1 = "127.0.0.1:7200"\n2 = "agent-2:7300"\n'

    @pytest.mark.parametrize(("agent", "address"), [(0, "0.0.0.0:7100"), (1, "127.0.0.1:7200"), (2, "0.0.0.0:7300")])
    def test_listens_where_the_cluster_says_it_is(self, agent: int, address: str, tmp_path: Path) -> None:
        (tmp_path / "cluster.toml").write_text(self.CLUSTER)
        assert _listening((agent,), tmp_path / "cluster.toml") == address

    def test_hosts_all_agents_of_its_address_and_no_others(self, tmp_path: Path) -> None:
        (tmp_path / "cluster.toml").write_text('[agents]\n0 = "a:7100"\n1 = "a:7100"\n2 = "b:7100"\n')
        assert _listening((0, 1), tmp_path / "cluster.toml") == "0.0.0.0:7100"
        for owned, shown in (((0, 2), "'0,2'"), ((1,), "'1'")):
            with pytest.raises(BadInput, match=f"--agents = {shown}: expected the agents that .* has at a:7100: 0-1"):
                _listening(owned, tmp_path / "cluster.toml")

    def test_refuses_an_agent_that_does_not_exist(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "cluster.toml").write_text(self.CLUSTER)
        (tmp_path / "ring.toml").write_text('[network]\ntopology = "ring"\nagents = 3\n')
        files = ["--cluster", str(tmp_path / "cluster.toml"), "--experiment", str(tmp_path / "ring.toml")]
        code = main(["--agents", "3", *files, "--home", str(tmp_path / "home"), "--plaintext"])
        assert code == 2
        assert "--agents = '3': expected agents of the experiment, which has 0 to 2" in capsys.readouterr().err


@pytest.mark.usefixtures("quick_plot")
def test_a_seeded_run_that_is_repeated_is_charged_once(dpp2: Call, small: list[str], tmp_path: Path) -> None:
    """As docs/privacy.md says; with run.seed = "os" every run draws its own noise."""

    for seed, factor in (("1", 1), ('"os"', 2)):
        folder = tmp_path / seed
        totals = []
        for name in ("first", "second"):
            assert dpp2("run", *small, "--set", f"run.seed={seed}", "--out", folder / name).code == 0
            shown = json.loads(dpp2("privacy", "ledger", folder, "--json").out)
            totals.append(max(agent["epsilon"] for agent in shown))
        assert totals[1] == pytest.approx(factor * totals[0])


def test_no_text_of_others_reaches_the_terminal_as_a_command(dpp2: Call, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def objective(i, n): raise ValueError('\\x1b[2J\\x9b2J red \\x07')")
    ended = dpp2("run", "--set", "problem.name=file", "--set", f"problem.path={tmp_path / 'own.py'}")
    (tmp_path / "keys.toml").write_text('[network]\n"\\u001b[31m" = 1\n')
    typed = dpp2("run", tmp_path / "keys.toml")
    assert (ended.code, typed.code) == (2, 2)
    assert "red" in ended.err
    assert not {"\x1b", "\x9b", "\x07"} & {*ended.err, *typed.err}
