"""Texts that models decide: on the operator's bill, and only if no test of the texts accepts them."""

import asyncio
from typing import Any

import msgspec
import pytest

from adapters.errors import BackendError
from adapters.fake import Script
from adapters.types import Form
from gateway.features.recording.contents import ResendSource
from gateway.features.shadow.answers import WholeAnswer
from gateway.features.shadow.comparer import MOST_TEXT, question_of, sampled_texts
from gateway.features.shadow.store import ShadowStore
from policies.shadowing.pairs import PairTally, ShadowSample
from policies.shadowing.planned import planned
from tests.support.gateways import chat
from tests.support.shadows import ShadowRig, script, shadowing

SECRET = "sk-0123456789abcdefghij0123456789"
MAIL = "ann@example.com"


@pytest.mark.processes
async def test_a_sample_has_neither_secrets_nor_configured_kinds() -> None:
    rig = ShadowRig(shadowing(samples=3), main=script(f"mail {MAIL}"), copied_next=script(f"the key is {SECRET}"))
    rig.copies.redact = ("email", "json:$.user")
    for _ in range(3):
        await rig.compare(chat(messages=[{"role": "user", "content": f"my key: {SECRET}, {MAIL}"}], user="ann"))
    sample, *others = rig.shadow.take_samples()  # one a second at most
    assert len(others) <= 2
    assert sample.id == "req-1"
    assert sample.differences.keys() == {"text"}
    for text in (sample.request, sample.primary, sample.shadow):
        assert SECRET not in text
        assert MAIL not in text
        assert '"ann"' not in text
    assert "[email]" in sample.primary
    assert "the key is [secret]" in sample.shadow
    rig.assert_idle()


async def test_without_samples_no_text_is_held() -> None:
    rig = ShadowRig(shadowing(), copied_next=script("another"))
    await rig.compare(chat())
    assert rig.shadow.copies == {"differing": 1}
    assert rig.shadow.take_samples() == []


def test_texts_are_cut_and_binary_tensors_are_left_out() -> None:
    source = ResendSource(
        "/v2/models/m/infer", "POST", "application/octet-stream", body=b'{"a": 1}' + b"\xff" * 64, head=8
    )
    long = WholeAnswer(200, data=b'"' + b"x" * 10_000 + b'"')
    binary = WholeAnswer(200, form=Form("oip-http", 8), data=b'{"b": 2}' + b"\0" * 64)
    texts = sampled_texts(source, long, binary, ())
    assert texts.request == '{"a": 1}'
    assert len(texts.primary) == MOST_TEXT + 1
    assert texts.shadow == '{"b": 2}'


async def test_a_database_has_the_latest_samples(any_database: str) -> None:
    configuration: Any = shadowing(samples=3)
    (plan,) = planned(configuration)
    key = plan.name, plan.identity
    store = ShadowStore(any_database, b"p" * 32)
    for number in range(7):
        taken = ShadowSample(float(number), f"req-{number}", {"text": "no"}, "q", "a", "b")
        await asyncio.to_thread(store.add, [plan], {key: PairTally(compared=1, differing=1)}, {key: [taken]})
    assert [sample.id for sample in store.samples(key)] == ["req-6", "req-5", "req-4"]
    store.close()


OTHER = ({"name": "other", "routes": [{"to": "other"}]},)


def vectors(*rows: list[float]) -> Script:
    return Script((msgspec.json.encode({"data": [{"embedding": row} for row in rows]}),))


def judging(*tests: Any) -> Any:
    return shadowing(models=OTHER, compare={"text": ["normalized", *tests]})


@pytest.mark.parametrize(
    ("rows", "end"),
    [
        (([1.0, 0.0], [0.99, 0.1]), "equal"),
        (([1.0, 0.0], [0.0, 1.0]), "differing"),
        (([1.0, 0.0],), "comparison"),
        (([1.0], [1.0, 2.0]), "differing"),
    ],
)
async def test_texts_with_near_vectors_agree(rows: tuple[list[float], ...], end: str) -> None:
    rig = ShadowRig(judging({"embedding": "other"}), copied_next=script("greetings"), copied_other=vectors(*rows))
    await rig.compare(chat())
    assert rig.shadow.copies == {end: 1}
    (embedded,) = [played.request for played in rig.copied["other"].calls]
    assert msgspec.json.decode(embedded.codec.fields(embedded)["input"]) == ["hello", "greetings"]
    assert rig.shadow.tokens["prompt"] == 6
    rig.assert_idle()


@pytest.mark.parametrize(
    ("verdicts", "end"),
    [
        (("[[A]]", "[[B]]"), "differing"),
        (("[[B]]", "[[A]]"), "equal"),
        (("[[C]]", "[[C]]"), "equal"),
        (("[[A]]", "[[A]]"), "equal"),
        (("no idea", "no idea"), "comparison"),
    ],
)
async def test_a_judge_prefers_the_primary_in_both_orders(verdicts: tuple[str, str], end: str) -> None:
    """A verdict that changes with the order is a tie."""
    rig = ShadowRig(judging({"judge": "other"}), copied_next=script("greetings"))
    rig.copied["other"].__init__(*(script(verdict) for verdict in verdicts))  # type: ignore[misc]
    await rig.compare(chat())
    assert rig.shadow.copies == {end: 1}
    prompts = [bytes(played.request.codec.fields(played.request)["messages"]) for played in rig.copied["other"].calls]
    assert len(prompts) == 2
    assert prompts[0].index(b"greetings") > prompts[0].index(b"answer_a>\\nhello")
    assert prompts[1].index(b"answer_a>\\ngreetings") > 0
    assert rig.ledger.accounts["acme"].in_flight == 0
    rig.assert_idle()


async def test_equal_texts_need_no_model() -> None:
    rig = ShadowRig(judging({"judge": "other"}), copied_next=script(" HELLO "))
    await rig.compare(chat())
    assert rig.shadow.copies == {"equal": 1}
    assert rig.copied["other"].calls == []


async def test_a_judge_that_fails_decides_nothing() -> None:
    rig = ShadowRig(
        judging({"judge": "other"}), copied_next=script("greetings"), copied_other=Script(fault=BackendError("broken"))
    )
    await rig.compare(chat())
    assert rig.shadow.copies == {"comparison": 1}
    rig.assert_idle()


async def test_the_tests_are_tried_in_their_order() -> None:
    """The vectors accept, so that the judge is not called; tool calls still count."""
    tests = ({"edit": "99%"}, {"embedding": "other"}, {"judge": "other"})
    called = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    rig = ShadowRig(
        judging(*tests),
        copied_next=script("greetings", message={"tool_calls": called}),
        copied_other=vectors([1.0], [2.0]),
    )
    await rig.compare(chat())
    tally = rig.shadow.take()
    assert tally is not None
    assert tally.fields == {"tools": 1}
    assert len(rig.copied["other"].calls) == 1


def test_the_question_is_the_users_last_message() -> None:
    assert question_of(chat()) == "hello"
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]
    messages = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": parts},
    ]
    assert question_of(chat(messages=messages)) == "look"
