"""Guards that judge by a model: each kind finds a text in a prompt and in an answer, and lets others pass."""

import asyncio
import json
from typing import Any

import pytest

from adapters.spans import SpanLog
from gateway.traffic.spans import AttemptSpan
from tests.support.gateways import chat
from tests.support.guarding import BODIES, received
from tests.support.judging import BY_CHAT, GUARDS, Judging, answer, judged, prompt_of


@pytest.mark.parametrize("kind", GUARDS)
async def test_a_prompt_is_judged(kind: str) -> None:
    guard, protocol = GUARDS[kind]
    model, judge = answer("fine"), Judging()
    one = judged(model, judge, guard, protocol=protocol)
    ((status, body, _),) = await received(one, "/v1/chat/completions", **prompt_of("about a zebra"))
    assert (status, json.loads(body)["error"]["code"]) == (400, "content_filter")
    assert not model.calls
    assert one.log.records[0].guards == {("g", "block", "enforce", "prompt"): 1}
    one.assert_idle()
    ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of("about a horse"))
    assert status == 200
    one.assert_idle()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("kind", GUARDS)
async def test_a_whole_answer_is_judged(kind: str, path: str) -> None:
    guard, protocol = GUARDS[kind]
    one = judged(answer("a Zebra it is"), Judging(), {**guard, "on": ["answer"]}, protocol=protocol)
    ((status, body, _),) = await received(one, path)
    assert status == 400
    assert "ebra" not in body
    one.assert_idle()


async def test_a_guard_of_labels_needs_the_probability() -> None:
    guard = {"name": "g", "kind": "injection", "model": "judge", "labels": ["BAD"], "threshold": 0.95}
    one = judged(answer("fine"), Judging(), guard)
    ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert status == 200


async def test_only_allowed_topics_pass() -> None:
    allowed = [{"name": "a", "examples": ["all about the zebra"]}]
    one = judged(answer("fine"), Judging(), {"name": "g", "kind": "topics", "embed": "judge", "allow": allowed})
    for text, expected in (("zebra " * 9, 200), ("horses " * 9, 400), ("hello", 200)):
        ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of(text))
        assert status == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Die Lieferung kommt morgen früh mit der Bahn in Hamburg an.", 400),
        ("The delivery arrives in Hamburg by train tomorrow morning.", 200),
        ("Guten Tag", 200),
    ],
)
async def test_languages_are_judged(text: str, expected: int) -> None:
    one = judged(answer("fine"), Judging(), {"name": "g", "kind": "language", "allow": ["en"]})
    ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of(text))
    assert status == expected


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(("text", "expected"), [('{"n": 3}', 200), ('{"n": "3"}', 400), ("no json", 400)])
@pytest.mark.parametrize("path", BODIES)
async def test_answers_have_the_form_of_a_schema(path: str, text: str, expected: int) -> None:
    one = judged(answer(text), Judging(), {"name": "g", "kind": "schema", "json_schema": SCHEMA})
    ((status, body, _),) = await received(one, path)
    assert status == expected, body
    one.assert_idle()


async def test_a_number_that_no_float_has_is_judged() -> None:
    schema = {"type": "number", "multipleOf": 0.5}
    one = judged(answer("1" + "0" * 400), Judging(), {"name": "g", "kind": "schema", "json_schema": schema})
    ((status, _, _),) = await received(one, "/v1/chat/completions")
    assert status == 400
    one.assert_idle()


async def test_a_monitor_counts_and_changes_nothing() -> None:
    one = judged(answer("a zebra"), Judging(), {**BY_CHAT, "mode": "monitor"})
    ((status, body, _),) = await received(one, "/v1/chat/completions", **prompt_of("zebra"))
    assert status == 200
    assert "zebra" in body
    assert one.log.records[0].guards == {("g", "block", "monitor", side): 1 for side in ("prompt", "answer")}


async def test_guards_judge_at_the_same_time_and_report_in_the_order_of_the_file() -> None:
    class Both(Judging):
        async def call(self, request: Any, call: Any) -> Any:
            if len(self.calls) == 1:
                self.gate.set()  # type: ignore[union-attr]
            return await super().call(request, call)

    judge = Both()
    judge.gate = asyncio.Event()
    first, second = {**BY_CHAT, "on": ["prompt"], "action": "warn"}, {**BY_CHAT, "name": "h", "on": ["prompt"]}
    one = judged(answer("fine"), judge, first, second)
    ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert status == 400
    assert [key[0] for key in one.log.records[0].guards or {}] == ["g", "h"]


async def test_the_tokens_and_the_cost_of_a_judge_are_the_clients() -> None:
    price = {"prompt": "10 eur/1M", "completion": "10 eur/1M"}
    limits = {"tokens": "1000/min"}
    one = judged(answer("fine"), Judging(), {**BY_CHAT, "on": ["prompt"]}, limits=limits, price=price)
    await received(one, "/v1/chat/completions", **prompt_of("a horse"))
    record = one.log.records[0]
    assert record.cost is not None
    assert one.left("tokens") == pytest.approx(1000 - 11 - 5, abs=1)
    before = one.left("tokens")
    ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert status == 400
    assert before - one.left("tokens") == pytest.approx(11, abs=1)
    assert one.log.records[1].cost == record.cost
    one.assert_idle()


async def test_a_model_that_judges_meets_no_guard() -> None:
    judge = Judging()
    guard = {**BY_CHAT, "on": ["prompt"]}
    one = judged(answer("fine"), judge, guard)
    await received(one, "/v1/chat/completions", **prompt_of("a horse"))
    assert len(judge.calls) == 1


async def test_a_trace_has_the_calls_of_judges() -> None:
    one = judged(answer("fine"), Judging(), BY_CHAT)
    record = one.record()
    log = record.trace.spans = SpanLog(None, record.started, one.core.clock)
    await one.core.handle(one.principal, chat(), {}, record)
    attempts = [span for span in log.spans if isinstance(span, AttemptSpan)]
    for span in attempts:
        span.describe(log)
    assert [span.attributes["headrace.pool"] for span in attempts] == ["judge", "main", "judge"]
    assert {span.parent for span in attempts} == {log.root_id}
    one.assert_idle()
