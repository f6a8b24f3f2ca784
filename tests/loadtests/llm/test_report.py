"""What the LLM benchmark says of its rounds."""

import json

import pytest

from loadtests.bench_llm import parse
from loadtests.llm.client import Door
from loadtests.llm.headrace import GATEWAY, OURS
from loadtests.llm.report import GOALS, Result, document, goal_lines, markdown, print_tables, reached
from loadtests.llm.targets import Part, Target
from loadtests.llm.workloads import W1, W2


def result() -> Result:
    def one(ours: float, theirs: float, through: float) -> dict[str, dict[str, float]]:
        speeds = {OURS: ours, "vllm": theirs, GATEWAY: through}
        return {"transformers": {}, **{name: {"tokens_per_s_w1": value} for name, value in speeds.items()}}

    rounds = [one(150, 100, 149), one(400, 200, 390), one(90, 60, 88)]
    return Result(W1, rounds, dropped=1, failed={"transformers": 3})


def test_goals_are_judged_by_ratios_of_single_rounds() -> None:
    found = {(goal.ours, goal.theirs): summary for goal, summary in reached([result()])}
    assert set(found) == {(OURS, "vllm"), (GATEWAY, OURS)}
    assert found[OURS, "vllm"] == (1.5, 1.5, 2.0)
    assert goal_lines([result()]) == [
        "w1 headrace ÷ vllm: 1.5 (1.5–2), wanted 1.5: reached",
        "w1 gateway+headrace ÷ headrace: 0.978 (0.975–0.993), wanted 0.97: reached",
    ]


def test_the_json_line_holds_everything() -> None:
    told = json.loads(document([result()], {"llama.cpp-q4_0": "no compiler"}))
    assert told["ratios"][f"tokens_per_s_w1/{OURS}/vllm"] == 1.5
    assert told["spread"][f"tokens_per_s_w1/{OURS}/vllm"] == [1.5, 2.0]
    pairs = {(OURS, "vllm"), (GATEWAY, "vllm"), (GATEWAY, OURS)}
    assert set(told["ratios"]) == {f"tokens_per_s_w1/{ours}/{theirs}" for ours, theirs in pairs}
    assert told["goals"][f"w1/{OURS}/vllm"] == {"wanted": 1.5, "found": 1.5}
    assert told["medians"]["vllm"] == {"tokens_per_s_w1": 100}
    assert told["rounds"] == {"w1": {"kept": 3, "dropped": 1}}
    assert told["failed"] == {"w1": {"transformers": 3}}
    assert told["missing"] == {"llama.cpp-q4_0": "no compiler"}


def test_tables_show_who_answered_and_tell_who_did_not(capsys: pytest.CaptureFixture[str]) -> None:
    print_tables([result()], {"llama.cpp-q4_0": "no compiler"})
    shown = capsys.readouterr().out
    assert "w1: transformers failed 3 answers" in shown
    assert "w1: 1 rounds dropped" in shown
    assert "missing: llama.cpp-q4_0: no compiler" in shown
    page = markdown([result()]).splitlines()
    assert page[2].startswith("| headrace | 150 (90–400) |")
    assert len(page) == 5


def test_the_command_line_is_checked() -> None:
    assert parse(["--peers", "none", "--weights", "bf16"]).peers == []
    assert parse(["--workloads", "w2,w1"]).workloads == ["w2", "w1"]
    for wrong in (["--peers", "nobody"], ["--weights", "int3"], ["--workloads", "w9"], ["--rounds", "0"]):
        with pytest.raises(SystemExit):
            parse(wrong)
    with pytest.raises(SystemExit):
        parse(["--requests", "0"])


def test_a_slow_server_is_asked_a_part() -> None:
    whole, slow = Target("a", Door(1, "m"), (1,)), Target("b", Door(1, "m"), (1,), {"w1": Part(8, 1)})
    assert whole.part(W1) == (64, 32)
    assert whole.part(W1, 4) == (4, 32)
    assert slow.part(W1) == (8, 1)
    assert slow.part(W2) is None


def test_goals_are_of_workloads_and_servers_that_there_are() -> None:
    known = {OURS, GATEWAY, f"{OURS}-int8", f"{OURS}-int4", *parse([]).peers}
    assert {goal.ours for goal in GOALS} | {goal.theirs for goal in GOALS} <= known
    assert {goal.workload for goal in GOALS} <= set(parse([]).workloads)
