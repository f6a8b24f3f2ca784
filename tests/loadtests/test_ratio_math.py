"""loadtests.figures.ratios and loadtests.figures.report: pairing by round, added latencies, the JSON line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.figures.ratios import Summary, ratios, subtract, summarise, values
from loadtests.figures.report import document, measured, print_tables
from loadtests.figures.rounds import Round, Rounds
from loadtests.gateways.workloads import WORKLOADS

pytestmark = pytest.mark.plain

POSITIVE = st.floats(1e-3, 1e3)


@given(st.lists(st.tuples(POSITIVE, POSITIVE, st.floats(0.5, 2.0)), min_size=1, max_size=9))
def test_drift_that_hits_a_whole_round_leaves_its_ratio_alone(rows: list[tuple[float, float, float]]) -> None:
    calm: list[Round] = [{"ours": {"cpu": mine}, "nginx": {"cpu": theirs}} for mine, theirs, _ in rows]
    drifted: list[Round] = [
        {"ours": {"cpu": mine * drift}, "nginx": {"cpu": theirs * drift}} for mine, theirs, drift in rows
    ]
    assert ratios(drifted, "ours", "nginx", "cpu") == pytest.approx(ratios(calm, "ours", "nginx", "cpu"))


@given(st.lists(POSITIVE, min_size=1))
def test_a_summary_is_ordered(numbers: list[float]) -> None:
    summary = summarise(numbers)
    assert summary is not None
    assert min(numbers) == summary.low <= summary.median <= summary.high == max(numbers)


def test_nothing_sums_up_to_nothing() -> None:
    assert summarise([]) is None
    assert summarise([3.0, 1.0, 2.0]) == Summary(2.0, 1.0, 3.0)


def test_only_added_figures_lose_the_direct_latency() -> None:
    one = {"direct": {"p50": 1.0, "cpu": 4.0}, "ours": {"p50": 3.0, "cpu": 9.0}}
    assert subtract(one, {"p50"}, "direct") == {
        "direct": {"p50": 1.0, "cpu": 4.0},
        "ours": {"p50": 2.0, "cpu": 9.0},
    }


def test_without_a_direct_value_an_added_latency_is_unknown() -> None:
    one: Round = {"direct": {}, "ours": {"p50": 3.0, "cpu": 9.0}}
    assert subtract(one, {"p50"}, "direct")["ours"] == {"cpu": 9.0}


def test_a_round_without_a_usable_pair_has_no_ratio() -> None:
    rounds: list[Round] = [
        {"ours": {"p50": 2.0}, "nginx": {"p50": 4.0}},
        {"ours": {"p50": -0.1}, "nginx": {"p50": 4.0}},
        {"ours": {"p50": 2.0}, "nginx": {}},
        {"ours": {"p50": 2.0}},
    ]
    assert ratios(rounds, "ours", "nginx", "p50") == [0.5]
    assert values(rounds, "nginx", "p50") == [4.0, 4.0]


def two_rounds() -> Rounds:
    def figures(scale: float) -> dict[str, float]:
        return {"added_p50_ms_50rps": 1.0 + scale, "added_p99_ms_50rps": 2.0 + scale}

    one = {"direct": figures(0), "headrace": figures(0.25), "nginx": figures(0.5)}
    other = {"direct": figures(0), "headrace": figures(0.5), "nginx": figures(0.5)}
    rounds = Rounds(dropped=1)
    rounds.accepted += [one, other]
    rounds.failed["litellm"] = 3
    return rounds


def test_the_json_line_has_ratios_spreads_and_all_failures() -> None:
    results = [measured(WORKLOADS["open50"], two_rounds())]
    report = json.loads(document(results, ["direct", "headrace", "nginx"], {"litellm": "no disk"}))
    assert report["ratios"] == {"added_p50_ms_50rps/nginx": 0.75, "added_p99_ms_50rps/nginx": 0.75}
    assert report["spread"]["added_p50_ms_50rps/nginx"] == [0.5, 1.0]
    assert report["medians"]["headrace"]["added_p50_ms_50rps"] == 0.375
    assert report["rounds"] == {"open50": {"kept": 2, "dropped": 1}}
    assert report["failed"] == {"open50": {"litellm": 3}}
    assert report["missing"] == {"litellm": "no disk"}


def test_the_table_names_missing_and_dropped_targets(capsys: pytest.CaptureFixture[str]) -> None:
    results = [measured(WORKLOADS["open50"], two_rounds())]
    print_tables(results, ["direct", "headrace", "nginx"], {"litellm": "no disk"})
    shown = capsys.readouterr().out
    assert "0.75 (0.5–1)" in shown
    assert "missing: litellm: no disk" in shown
    assert "open50: 1 rounds dropped" in shown
    assert "open50: litellm failed 3 answers" in shown
