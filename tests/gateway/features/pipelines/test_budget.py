"""The budget of a pipeline: reserved once, refused before a call that may exceed it, settled with the truth."""

from typing import Any

import pytest

from adapters.errors import BackendError, BudgetExceeded, LimitExceeded
from adapters.fake import FakeAdapter, Script
from tests.gateway.features.pipelines.rigs import EACH, TWO, batch, chat_fake, floats, infer, infers, outputs, rig
from tests.support.gateways import chat

PRICES = {"a": "0.001 usd", "b": "0.010 usd"}
STEPS: list[dict[str, Any]] = TWO["steps"]


def two(budget: dict[str, Any] | None, steps: Any = STEPS, **fields: Any) -> Any:
    pipeline = {"steps": steps, **({"budget": budget} if budget else {})}
    return rig(pipeline, {"a": chat_fake("x"), "b": chat_fake("y")}, prices=PRICES, **fields)


@pytest.mark.parametrize(
    ("budget", "refused"),
    [
        ({"spend": "0.011 usd"}, ""),
        ({"spend": "0.0109 usd"}, "b"),
        ({"spend": "0.0009 usd"}, "a"),
        ({"tokens": 40}, ""),
        ({"tokens": 24}, "b"),  # 5 are used by the first call, whose estimate was more
        ({"tokens": 2}, "a"),
    ],
)
async def test_a_call_that_may_exceed_the_budget_does_not_start(budget: dict[str, Any], refused: str) -> None:
    one = two(budget)
    request = chat("whole", max_tokens=14)
    if not refused:
        await one.core.handle(one.principal, request, {}, one.record())
    else:
        with pytest.raises(BudgetExceeded, match=f"A call of `{refused}` would exceed the budget of `whole`") as caught:
            await one.core.handle(one.principal, request, {}, record := one.record())
        assert one.adapters[refused][0].calls == []
        assert caught.value.code == "pipeline_budget_exceeded"
        one.core.end(record, caught.value)
        assert str(record.cost) == ("0.001 usd" if refused == "b" else "None")


@pytest.mark.parametrize("budget", [{"spend": "0.012 usd"}, None])
async def test_no_more_than_the_budget_is_reserved_and_the_truth_is_settled(budget: dict[str, str] | None) -> None:
    chosen = [{"if": 'draft.text == "z"', "model": "b"}, {"else": True, "model": "a"}]
    last = {"name": "last", "model": "b", "in": {"prompt": "or.text"}}
    one = two(budget, [STEPS[0], {"name": "or", "switch": chosen}, last], limits={"spend": "0.024 usd/day"})
    await one.core.handle(one.principal, chat("whole"), {}, record := one.record())
    assert str(record.cost) == "0.012 usd"  # the worst path costs 0.021 usd
    if budget is None:
        with pytest.raises(LimitExceeded):
            await one.core.handle(one.principal, chat("whole"), {}, one.record())
    else:
        await one.core.handle(one.principal, chat("whole"), {}, one.record())


async def test_a_step_may_be_skipped_where_the_budget_ends() -> None:
    steps = [{**STEPS[0]}, {**STEPS[1], "on_error": {"use": {"text": "no second opinion"}}}]
    one = two({"spend": "0.005 usd"}, steps)
    answer = await one.core.handle(one.principal, chat("whole"), {}, one.record())
    assert answer.body is not None
    assert b"no second opinion" in answer.body


async def test_a_failed_call_leaves_its_share() -> None:
    steps = [{**STEPS[1], "in": {"prompt": "request.text"}, "on_error": "skip"}, {"name": "again", "model": "c"}]
    fakes = {"b": FakeAdapter(Script(fault=BackendError("broken"))), "c": chat_fake("y")}
    one = rig({"steps": steps, "budget": {"spend": "0.010 usd"}, "out": {"text": "again.text"}}, fakes,
              prices={"b": "0.010 usd", "c": "0.010 usd"})  # fmt: skip
    await one.core.handle(one.principal, chat("whole"), {}, one.record())


@pytest.mark.parametrize(("spend", "admitted"), [("0.003 usd", True), ("0.002 usd", False)])
async def test_rows_that_run_at_once_share_the_budget(spend: str, admitted: bool) -> None:
    one = rig({"steps": [EACH], "budget": {"spend": spend}}, {"a": infers(floats("y", 7))}, tensors="a", prices=PRICES)
    if admitted:
        answer = await one.core.handle(one.principal, infer(batch(3)), {}, one.record())
        assert (await outputs(answer))["y"].shape == (3, 1)
    else:
        with pytest.raises(BudgetExceeded):
            await one.core.handle(one.principal, infer(batch(3)), {}, one.record())


@pytest.mark.parametrize(
    ("outer", "inner", "pipeline"),
    [("0.011 usd", "0.001 usd", ""), ("0.0105 usd", "0.001 usd", "whole"), ("0.011 usd", "0.0005 usd", "drafts")],
)
async def test_a_call_counts_against_the_budgets_of_all_pipelines_around_it(
    outer: str, inner: str, pipeline: str
) -> None:
    drafts = {"name": "drafts", "pipeline": {"model": "a", "budget": {"spend": inner}}}
    steps = [{"name": "draft", "model": "drafts"}, STEPS[1]]
    one = two({"spend": outer}, steps, models=[drafts])
    if pipeline:
        with pytest.raises(BudgetExceeded, match=f"the budget of `{pipeline}`"):
            await one.core.handle(one.principal, chat("whole"), {}, one.record())
    else:
        await one.core.handle(one.principal, chat("whole"), {}, one.record())
