"""The ledger: every round charged once, whatever is repeated or lost, and the budget kept over all runs."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpp2.errors import BadInput
from dpp2.privacy import Dpp2Releases, Epsilon, Ledger, Unsupported, calibrate, epsilon, publish_term
from dpp2.privacy.baselines import BASELINES
from dpp2.privacy.calibrate import Calibration

USUAL = Dpp2Releases(dimension=10, alpha=0.1, smoothness=5.0, adjacency=0.01, u_e=1.0, u_w=0.7, decay=0.95)
OTHER = replace(USUAL, decay=0.9, u_e=2.0)
EMPTY = Ledger(agent="3", data_digest="d1")


def value(figure: Epsilon | Unsupported) -> float:
    assert isinstance(figure, Epsilon)
    assert figure.value is not None
    return figure.value


def charged(ledger: Ledger, run_id: str, mechanism: Dpp2Releases, rounds: int) -> Ledger:
    for k in range(rounds):
        ledger = ledger.charge(run_id, mechanism, k)
    return ledger


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1))
def test_no_round_is_charged_twice_and_none_is_forgotten_in_whatever_order(rounds: list[int]) -> None:
    ledger = EMPTY
    for k in rounds:
        ledger = ledger.charge("a", USUAL, k)
    assert ledger.entries["a"].rounds == max(rounds) + 1
    assert ledger.spent() == epsilon(USUAL, max(rounds) + 1)


def test_a_resumed_run_that_repeats_rounds_spends_nothing_for_them() -> None:
    before = charged(EMPTY, "a", USUAL, 10)
    stored = json.dumps(before.to_dict())
    resumed = Ledger.from_dict(json.loads(stored))
    for k in range(7, 10):  # the checkpoint was three rounds old
        resumed = resumed.charge("a", USUAL, k)
    assert resumed.spent() == before.spent()
    assert resumed.charge("a", USUAL, 10).spent() == epsilon(USUAL, 11)


def test_runs_on_the_same_data_add_up_each_with_its_own_mechanism() -> None:
    ledger = charged(charged(EMPTY, "a", USUAL, 10), "b", OTHER, 4)
    assert value(ledger.spent()) == pytest.approx(value(epsilon(USUAL, 10)) + value(epsilon(OTHER, 4)), rel=1e-15)
    assert ledger.spent(except_run="a") == epsilon(OTHER, 4)
    assert value(EMPTY.spent()) == 0


def test_one_run_id_cannot_carry_two_mechanisms() -> None:
    ledger = EMPTY.charge("a", USUAL, 0)
    with pytest.raises(BadInput, match="run id"):
        ledger.charge("a", OTHER, 1)
    with pytest.raises(BadInput, match="run id"):
        ledger.rounds_within(1.0, OTHER, "a", 5)


def test_a_ledger_is_a_value() -> None:
    EMPTY.charge("a", USUAL, 5)
    assert dict(EMPTY.entries) == {}


def test_publishing_is_charged_once_and_absorbed_by_the_round_that_repeats_it() -> None:
    ledger = charged(EMPTY, "a", USUAL, 5)
    published = ledger.publish("a", 5)
    assert value(published.spent()) == pytest.approx(value(ledger.spent()) + value(publish_term(USUAL, 5)), rel=1e-14)
    assert published.publish("a", 5) == published
    assert published.charge("a", USUAL, 5).spent() == epsilon(USUAL, 6)
    assert value(ledger.publish("a", 3).spent()) == value(ledger.spent())


def test_only_what_a_run_has_reached_can_be_published() -> None:
    with pytest.raises(BadInput, match="run id"):
        EMPTY.publish("a", 1)
    with pytest.raises(BadInput, match="rounds"):
        EMPTY.charge("a", USUAL, 0).publish("a", 2)


@settings(deadline=None)
@given(st.floats(0.05, 20), st.integers(0, 15), st.integers(0, 10), st.integers(1, 60), st.booleans())
def test_a_run_may_go_on_up_to_the_round_that_would_exceed_the_budget(
    budget: float, earlier: int, own: int, wanted: int, publishing: bool
) -> None:
    ledger = charged(charged(EMPTY, "a", OTHER, earlier), "b", USUAL, min(own, wanted))
    allowed = ledger.rounds_within(budget, USUAL, "b", wanted, publishing=publishing)
    assert min(own, wanted) <= allowed.rounds <= wanted
    if allowed.rounds > min(own, wanted):
        run = charged(ledger, "b", USUAL, allowed.rounds)
        if publishing:
            run = run.publish("b", allowed.rounds)
        assert value(run.spent()) <= budget
        assert value(run.spent()) == pytest.approx(value(allowed.total), rel=1e-14)
    if allowed.rounds < wanted:
        beyond = charged(ledger, "b", USUAL, allowed.rounds + 1)
        if publishing:
            beyond = beyond.publish("b", allowed.rounds + 1)
        assert value(beyond.spent()) > budget
        assert f"round {allowed.rounds} would bring the total" in str(allowed.reason)


def test_a_calibrated_run_is_allowed_all_its_rounds() -> None:
    found = calibrate(USUAL, 5.0, "decay", rounds=40)
    assert isinstance(found, Calibration)
    allowed = EMPTY.rounds_within(5.0, found.mechanism, "a", 40)
    assert (allowed.rounds, allowed.reason) == (40, None)
    assert EMPTY.charge("b", USUAL, 0).rounds_within(5.0, found.mechanism, "a", 40).rounds == 39


def test_a_spent_budget_leaves_room_only_for_repeating_what_was_released() -> None:
    ledger = charged(EMPTY, "a", USUAL, 10)
    assert ledger.rounds_within(1e-3, USUAL, "a", 50).rounds == 10
    assert ledger.rounds_within(1e-3, USUAL, "b", 50).rounds == 0
    published = ledger.publish("a", 10)
    assert published.rounds_within(1e-3, USUAL, "a", 50).total == published.spent()


def test_a_run_without_a_guarantee_leaves_none_for_the_sum() -> None:
    bare = EMPTY.charge("a", replace(USUAL, u_e=0.0), 0)
    total = bare.spent()
    assert isinstance(total, Epsilon)
    assert (total.log10, total.value) == (math.inf, None)
    assert "u_e = 0" in str(total.reason)
    assert bare.rounds_within(5.0, USUAL, "b", 10).rounds == 0
    rough = EMPTY.charge("r", replace(USUAL, smoothness=math.inf), 2)
    assert isinstance(rough.spent(), Unsupported)
    assert "run r" in str(rough.spent())
    assert rough.rounds_within(5.0, USUAL, "b", 10).rounds == 0
    assert EMPTY.rounds_within(5.0, replace(USUAL, adjacency=0.0), "b", 10).rounds == 0


def test_the_ledger_survives_strict_json() -> None:
    ledger = charged(charged(EMPTY, "a", USUAL, 10).publish("a", 10), "b", replace(USUAL, decay=0.5), 3)
    ledger = ledger.charge("bare", replace(USUAL, u_w=0.0), 4)
    ledger = ledger.charge("huge", replace(USUAL, decay=0.5), 4999)
    ledger = ledger.charge("rough", replace(USUAL, smoothness=math.inf), 4)
    text = json.dumps(ledger.to_dict(), allow_nan=False)
    again = Ledger.from_dict(json.loads(text))
    assert again == ledger
    assert json.loads(text)["runs"]["a"]["epsilon"] == value(ledger.entries["a"].epsilon())
    assert json.loads(text)["runs"]["huge"]["epsilon"] is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"version": 9}, "version"),
        ({"runs": {"a": {"rounds": 1}}}, "mechanism"),
        ({"runs": {"a": {"rounds": -1, "mechanism": {}}}}, "rounds"),
        ({"runs": {"a": {"rounds": 1, "published": 3, "mechanism": {}}}}, "published"),
        ({"runs": {"a": {"rounds": 1, "mechanism": {"dimension": 3}}}}, "alpha"),
        ({"runs": {"a": {"rounds": 1, "mechanism": {"decai": 3}}}}, "decay"),
    ],
)
def test_a_damaged_ledger_is_refused_with_the_field_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        Ledger.from_dict({**EMPTY.to_dict(), **change})


def test_rounds_below_zero_and_budgets_of_zero_are_bad_input() -> None:
    with pytest.raises(BadInput, match="round"):
        EMPTY.charge("a", USUAL, -1)
    with pytest.raises(BadInput, match="budget"):
        EMPTY.rounds_within(0.0, USUAL, "a", 5)


def test_a_run_that_starts_anew_gets_nothing_where_its_own_charge_is_over_the_budget() -> None:
    """The same seeded run again, now with a budget: what it was charged before does not count as free."""
    mechanism = Dpp2Releases(dimension=2, alpha=0.1, smoothness=1.0, adjacency=0.1, u_e=1.0, u_w=1.0, decay=0.9)
    ledger = Ledger("0", "data").charge("run", mechanism, 499)
    anew = ledger.rounds_within(20.0, mechanism, "run", 500, resumed_at=0)
    assert anew.rounds == 0
    assert "500 rounds before" in str(anew.reason)
    assert ledger.rounds_within(20.0, mechanism, "run", 500, resumed_at=300).rounds == 300


def test_a_run_that_starts_anew_within_its_budget_is_not_held_back_by_its_own_charge() -> None:
    mechanism = Dpp2Releases(dimension=2, alpha=0.1, smoothness=1.0, adjacency=0.1, u_e=1.0, u_w=1.0, decay=0.9)
    ledger = Ledger("0", "data").charge("run", mechanism, 9)
    for wanted in (5, 10, 11):
        allowance = ledger.rounds_within(20.0, mechanism, "run", wanted, resumed_at=0)
        assert (allowance.rounds, allowance.reason) == (wanted, None)


# What ledgers on disk hold, byte for byte. They outlive programs: all of it must be read, and written as it was.
STORED = (
    (
        '{"kind": "dpp2", "dimension": 10, "alpha": 0.1, "smoothness": 5.03, "adjacency": 0.1, '
        '"u_e": 1.0, "u_w": 1.0, "decay": 0.9, "start_adjacency": 0.0}',
        '{"rounds": 5, "published": 5, "epsilon": 3.650409668153697, "log10_epsilon": 0.562341606000261, '
        '"reason": null}',
    ),
    (
        '{"kind": "step", "dimension": 3, "smoothness": 2.0, "adjacency": 0.1, "u_x": 1.0, "decay": 0.9, '
        '"memory": "difference", "step": 0.1, "ratio": 1.0, "slowdown": 0.5, "power": 0.7}',
        '{"rounds": 5, "published": null, "epsilon": 0.12842311249230848, "log10_epsilon": '
        '-0.8913568086302867, "reason": null}',
    ),
    (
        '{"kind": "tracking", "dimension": 3, "alpha": 0.1, "smoothness": "inf", "adjacency": 0.1, '
        '"u_x": 1.0, "u_y": 2.0, "decay": 0.9}',
        '{"rounds": 5, "published": null, "epsilon": null, "log10_epsilon": null, "reason": '
        '"unsupported, because the gradient needs a finite Lipschitz bound, and smoothness is inf"}',
    ),
    (
        '{"kind": "gaussian step", "smoothness": 2.0, "adjacency": 0.1, "sigma": 1.0, "memory": "own", '
        '"step": 0.1, "ratio": 1.0, "slowdown": 0.0, "power": 0.0}',
        '{"rounds": 5, "published": null, "epsilon": null, "log10_epsilon": null, "reason": '
        '"unsupported, because Gaussian noise has no pure \\u03b5; what holds is (\\u03b5, \\u03b4_dp) = '
        '(0.3345, 1e-05), by zCDP"}',
    ),
    (
        '{"kind": "gaussian difference", "smoothness": 2.0, "adjacency": 0.1, "sigma": 1.0, '
        '"sigma_difference": 2.0, "restart": 7}',
        '{"rounds": 5, "published": null, "epsilon": null, "log10_epsilon": null, "reason": '
        '"unsupported, because Gaussian noise has no pure \\u03b5; what holds is (\\u03b5, \\u03b4_dp) = '
        '(22.63, 1e-05), by zCDP"}',
    ),
    (
        '{"kind": "unaccounted", "reason": "nobody knows", "smoothness": 0.0}',
        '{"rounds": 5, "published": null, "epsilon": null, "log10_epsilon": null, "reason": '
        '"unsupported, because nobody knows"}',
    ),
)


@pytest.mark.parametrize(("mechanism", "rest"), STORED, ids=lambda text: json.loads(text).get("kind", ""))
def test_what_a_ledger_holds_is_read_and_written_again_byte_for_byte(mechanism: str, rest: str) -> None:
    stored = '{"mechanism": ' + mechanism + ", " + rest[1:]
    plain = {"version": 1, "agent": "3", "data_digest": "d1", "runs": {"run": json.loads(stored)}}
    assert json.dumps(Ledger.from_dict(plain).entries["run"].to_dict()) == stored


def test_every_kind_of_releases_has_an_entry_of_its_own_among_those() -> None:
    kinds = [json.loads(mechanism)["kind"] for mechanism, _ in STORED]
    assert kinds == [cls.kind for cls in (Dpp2Releases, *BASELINES)]
