"""The report of the LLM benchmark: ratios, goals, tables and the JSON line."""

import json

import pytest

from loadtests.bench_llm import parse
from loadtests.llm.client import Door
from loadtests.llm.headrace import GATEWAY, OURS
from loadtests.llm.report import GOALS, Result, document, goal_lines, markdown, print_tables, reached
from loadtests.llm.targets import Part, Target
from loadtests.llm.workloads import W1, W2, W5

pytestmark = pytest.mark.plain


def result() -> Result:
    def one(ours: float, theirs: float, through: float) -> dict[str, dict[str, float]]:
        speeds = {OURS: ours, "vllm": theirs, GATEWAY: through}
        return {"transformers": {}, **{name: {"tokens_per_s_w1": value} for name, value in speeds.items()}}

    rounds = [one(150, 100, 149), one(400, 200, 390), one(90, 60, 88)]
    return Result(W1, rounds, dropped=1, failed={"transformers": 3})


def test_goals_are_judged_by_ratios_of_single_rounds() -> None:
    measured = {(goal.ours, goal.theirs): summary for goal, summary in reached([result()])}
    assert set(measured) == {(OURS, "vllm"), (GATEWAY, OURS)}
    assert measured[OURS, "vllm"] == (1.5, 1.5, 2.0)
    assert goal_lines([result()]) == [
        "w1 tokens/s, headrace ÷ vllm: 1.5 (1.5–2), required ≥ 1.5: reached",
        "w1 tokens/s, gateway+headrace ÷ headrace: 0.978 (0.975–0.993), required ≥ 0.97: reached",
    ]


@pytest.mark.parametrize(("gap", "verdict"), [(0.2, "reached"), (1.5, "reached"), (1.6, "MISSED")])
def test_a_gap_of_long_prompts_is_bounded_from_above(gap: float, verdict: str) -> None:
    workload = W5[0]
    one = {OURS: {f"gap_p99_ms_{workload.name}": gap}, "vllm": {f"gap_p99_ms_{workload.name}": 1.0}}
    measured = Result(workload, [one, one], dropped=0, failed={})
    assert goal_lines([measured]) == [
        f"w5-2k gap p99, headrace ÷ vllm: {gap:g} ({gap:g}–{gap:g}), required ≤ 1.5: {verdict}"
    ]
    goals = json.loads(document([measured], {}))["goals"]
    assert goals == {f"gap_p99_ms_w5-2k/{OURS}/vllm": {"required": "≤ 1.5", "measured": gap}}


def test_every_long_workload_bounds_speed_and_gap() -> None:
    bounds = {(goal.workload, goal.bound) for goal in GOALS if goal.theirs == "vllm"}
    assert bounds >= {(workload.name, bound) for workload in W5 for bound in ("≥ 1.3", "≤ 1.5")}


def test_the_json_line_holds_everything() -> None:
    line = json.loads(document([result()], {"llama.cpp-q4_0": "no compiler"}))
    assert line["ratios"][f"tokens_per_s_w1/{OURS}/vllm"] == 1.5
    assert line["spread"][f"tokens_per_s_w1/{OURS}/vllm"] == [1.5, 2.0]
    pairs = {(OURS, "vllm"), (GATEWAY, "vllm"), (GATEWAY, OURS)}
    assert set(line["ratios"]) == {f"tokens_per_s_w1/{ours}/{theirs}" for ours, theirs in pairs}
    assert line["goals"][f"tokens_per_s_w1/{OURS}/vllm"] == {"required": "≥ 1.5", "measured": 1.5}
    assert line["medians"]["vllm"] == {"tokens_per_s_w1": 100}
    assert line["rounds"] == {"w1": {"kept": 3, "dropped": 1}}
    assert line["failed"] == {"w1": {"transformers": 3}}
    assert line["missing"] == {"llama.cpp-q4_0": "no compiler"}


def test_tables_show_answered_and_failed_servers(capsys: pytest.CaptureFixture[str]) -> None:
    print_tables([result()], {"llama.cpp-q4_0": "no compiler"})
    shown = capsys.readouterr().out
    assert "w1: transformers failed 3 answers" in shown
    assert "w1: 1 rounds dropped" in shown
    assert "missing: llama.cpp-q4_0: no compiler" in shown
    page = markdown([result()]).splitlines()
    assert page[2].startswith("| headrace | 150 (90–400) |")
    assert len(page) == 5


def test_a_slow_server_receives_a_part() -> None:
    whole, slow = Target("a", Door(1, "m"), (1,)), Target("b", Door(1, "m"), (1,), {"w1": Part(8, 1)})
    assert whole.part(W1) == (64, 32)
    assert whole.part(W1, 4) == (4, 32)
    assert slow.part(W1) == (8, 1)
    assert slow.part(W2) is None


def test_goals_are_of_workloads_and_servers_that_there_are() -> None:
    targets = {OURS, GATEWAY, f"{OURS}-int8", f"{OURS}-int4", *parse([]).peers}
    assert {goal.ours for goal in GOALS} | {goal.theirs for goal in GOALS} <= targets
    assert {goal.workload for goal in GOALS} <= {*parse([]).workloads, *parse(["--mixture"]).workloads}
