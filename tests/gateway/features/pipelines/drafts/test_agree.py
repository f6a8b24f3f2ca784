"""Cascades whose first stage is the agreement of cheap models."""

import json
from typing import Any

import pytest

from adapters.errors import BackendError
from adapters.fake import FakeAdapter, Script
from tests.gateway.features.pipelines.rigs import chat_fake, rig, text
from tests.support.gateways import Rig


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
