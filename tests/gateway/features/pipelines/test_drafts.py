"""Judges: which draft wins, what a failing judge does, and what is charged."""

import json
from typing import Any

import aiohttp
import pytest

from adapters.errors import BackendError, CallerError
from adapters.fake import FakeAdapter, Script
from tests.gateway.features.pipelines.rigs import chat_fake, chat_script, rig, sent, text
from tests.support.gateways import Rig, chat, listening


def cascade(*cheap: FakeAdapter, **agree: Any) -> Rig:
    fakes = {f"m{index}": fake for index, fake in enumerate(cheap)}
    cheap_stage = {"name": "cheap", "agree": {"of": list(fakes), **agree}, "accept_if": "agreement >= 0.6"}
    stages = [cheap_stage, {"model": "large"}]
    return rig({"cascade": stages}, {**fakes, "large": chat_fake("large")})


@pytest.mark.parametrize(
    ("answers", "by", "result"),
    [
        (("Paris.", "paris", "Rome"), "text", "Paris."),
        (("Paris", "Rome", "Oslo"), "text", "large"),
        (("It is 42.", "6 * 7 = 42", "43"), "number", "It is 42."),
        (("no", "none", "nil"), "number", "large"),
        (("one two three", "one two three!", "one two tree"), "edit", "one two three"),
    ],
)
async def test_answers_that_agree_end_the_cascade(answers: tuple[str, ...], by: str, result: str) -> None:
    one = cascade(*map(chat_fake, answers), by=by)
    assert await text(one) == result
    assert len(one.adapters["large"][0].calls) == (result == "large")


async def test_a_failed_draft_agrees_with_none() -> None:
    down = FakeAdapter(Script(fault=BackendError("down")))
    one = cascade(chat_fake("a"), chat_fake("a"), down)
    assert await text(one) == "a"  # two of three
    one = cascade(chat_fake("a"), down, FakeAdapter(Script(fault=BackendError("down"))))
    assert await text(one) == "large"


async def test_a_client_of_a_stream_receives_the_agreed_answer_as_events() -> None:
    one = cascade(chat_fake("a"), chat_fake("a"))
    stream = await text(one, stream=True)
    assert json.loads(stream.split("\n\n")[0][6:])["choices"][0]["delta"]["content"] == "a"
    assert stream.endswith("data: [DONE]\n\n")


def judged(
    judge: FakeAdapter, fakes: dict[str, FakeAdapter] | None = None, *, fails: bool = False, **fields: Any
) -> Rig:
    drafts = fakes or {"a": chat_fake("draft a"), "b": chat_fake("draft b")}
    if fails:
        fields["else"] = "fail"
    return rig({"judge": {"of": list(drafts), "model": "j", **fields}}, {**drafts, "j": judge})


@pytest.mark.parametrize(
    ("verdicts", "winner"),
    [
        (("[[B]]", "[[A]]"), "draft b"),
        (("[[A]]", "[[B]]"), "draft a"),
        (("[[B]]", "[[B]]"), "draft a"),  # it prefers the second place
        (("[[C]]", "[[C]]"), "draft a"),
        (("no idea", "[[A]]"), "draft b"),
        (("no idea", "no idea"), "draft a"),
    ],
)
async def test_a_draft_wins_only_in_both_orders(verdicts: tuple[str, str], winner: str) -> None:
    one = judged(FakeAdapter(*map(chat_script, verdicts)))
    assert await text(one) == winner
    first, second = (sent(one, "j", call)["messages"][0]["content"] for call in (0, 1))
    assert first.index("draft a") < first.index("draft b")
    assert second.index("draft a") > second.index("draft b")


async def test_a_failing_judge_takes_the_first_draft_or_fails_as_configured() -> None:
    one = judged(FakeAdapter(Script(fault=BackendError("down"))))
    assert await text(one) == "draft a"
    one = judged(FakeAdapter(Script(fault=BackendError("down"))), fails=True)
    with pytest.raises(BackendError, match="down"):
        await text(one)


async def test_all_drafts_and_judgements_are_charged() -> None:
    one = judged(
        chat_fake("[[B]]"),
        {"a": FakeAdapter(chat_script("one"), chat_script("two"), chat_script("three"))},
        n=3,
        both_orders=False,
    )
    record = one.record()
    answer = await one.core.handle(one.principal, chat("whole"), {}, record)
    assert answer.body is not None
    assert json.loads(answer.body)["choices"][0]["message"]["content"] == "three"
    assert len(one.adapters["a"][0].calls) == 3
    assert len(one.adapters["j"][0].calls) == 2
    assert record.usage is not None
    assert record.usage.completion_tokens == 5 * 2
    assert json.loads(answer.body)["usage"]["completion_tokens"] == 5 * 2


async def test_the_judge_receives_nothing_of_the_request_but_the_question() -> None:
    one = judged(chat_fake("[[A]]"))
    await text(one, tools=[{"type": "function"}], max_tokens=3, messages=[{"role": "user", "content": "why?"}])
    received = sent(one, "j")
    assert sorted(received) == ["max_tokens", "messages", "model", "temperature"]
    assert received["max_tokens"] == 512
    assert "why?" in received["messages"][0]["content"]
    assert sent(one, "a")["tools"] == [{"type": "function"}]


async def test_equal_drafts_need_no_judge_and_a_failed_draft_is_left_out() -> None:
    one = judged(chat_fake("[[B]]"), {"a": chat_fake("same"), "b": chat_fake("same")})
    assert await text(one) == "same"
    assert one.adapters["j"][0].calls == []
    one = judged(chat_fake("[[B]]"), {"a": FakeAdapter(Script(fault=BackendError("down"))), "b": chat_fake("draft b")})
    answer = await one.core.handle(one.principal, chat("whole"), {}, one.record())
    assert b"draft b" in (answer.body or b"")
    assert ("x-headrace-steps", "a=failed") in answer.headers
    fakes = {"a": FakeAdapter(Script(fault=CallerError("wrong"))), "b": FakeAdapter(Script(fault=CallerError("wrong")))}
    one = judged(chat_fake("[[B]]"), fakes)
    with pytest.raises(CallerError, match="wrong"):
        await text(one)


async def test_a_client_that_requests_a_stream_receives_the_best_draft_as_events() -> None:
    one = judged(chat_fake("[[A]]"))

    async with listening(one) as url:
        body = {"model": "whole", "messages": [{"role": "user", "content": "q"}], "stream": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        headers = {"authorization": f"Bearer {one.key.plaintext}"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response,
        ):
            assert response.content_type == "text/event-stream"
            events = [line[6:] for line in (await response.text()).split("\n\n") if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    first, usage = json.loads(events[0]), json.loads(events[1])
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"]["content"] == "draft a"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 4 * 2
    await one.until_idle()


@pytest.mark.parametrize(("node", "winner"), [("judge", "draft of a pipeline"), ("agree", "single draft")])
async def test_a_draft_may_be_that_of_a_pipeline(node: str, winner: str) -> None:
    inner = {"name": "inner", "pipeline": {"cascade": [{"model": "a", "accept_if": "not refusal"}, {"model": "b"}]}}
    fakes = {
        "a": chat_fake("I'm sorry, but I can't help with that."),
        "b": chat_fake("draft of a pipeline"),
        "c": chat_fake("single draft"),
        "d": chat_fake("Single draft."),
        "j": FakeAdapter(chat_script("[[A]]"), chat_script("[[B]]")),
    }
    nodes: dict[str, Any] = {
        "judge": {"judge": {"of": ["inner", "c"], "model": "j"}},
        "agree": {"agree": {"of": ["inner", "c", "d"]}},
    }
    one = rig(nodes[node], fakes, models=[inner])
    assert await text(one) == winner
