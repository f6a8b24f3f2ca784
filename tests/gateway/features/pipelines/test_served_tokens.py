"""Tokens of texts, and texts of tokens, by the tokenizer of a language model's own server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.answer import Answer
from adapters.base import Upstream
from adapters.call import Call
from adapters.errors import CallerError, ContextTooLong, StepFailed
from adapters.fake import FakeAdapter, Script
from adapters.http1.client import Client
from adapters.requests import ModelRequest
from adapters.tensors import Tensor, join_bytes
from adapters.upstreams.openai.client import OpenAIAdapter
from gateway.features.pipelines.values import array_of
from tests.gateway.features.pipelines.rigs import infer, infers, outputs, rig, text
from tests.runtimes.llm.server_fixtures import MODEL, Running, post, serving
from tests.support.gateways import Rig

pytestmark = pytest.mark.runtimes

BEGIN = "<|im_start|>"


class Served(FakeAdapter):
    """Sends the calls to a real server."""

    def __init__(self, adapter: Upstream) -> None:
        super().__init__()
        self._adapter = adapter

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return await self._adapter.call(request, call)


@asynccontextmanager
async def language(steps: list[dict[str, Any]], out: dict[str, str]) -> AsyncIterator[tuple[Rig, Running]]:
    """A pipeline over a real LLM runtime, whose tokens are the bytes of the text, and a model of tensors."""
    async with serving() as running:
        adapter = OpenAIAdapter(Client(running.url), model=MODEL, ours=True)
        fakes = {"lm": Served(adapter), "m": infers(Tensor("ids", "INT64", (1, 1), bytes(8)))}
        one = rig({"steps": steps, "out": out}, fakes, tensors="m")
        yield one, running
        one.assert_idle()
        await adapter.aclose()


def encode(**section: Any) -> dict[str, Any]:
    return {"name": "t", "in": {"text": "request.TEXT"}, "tokenize": {"model": "lm", **section}}


OUT = {name: f"t.{name}" for name in ("ids", "mask", "types", "count")}
BACK = {"name": "d", "in": {"ids": "t.ids"}, "detokenize": {"model": "lm"}}
USES_TENSORS = {"name": "last", "model": "m", "in": {"ids": "t.ids"}}


async def answered(one: Rig, *texts: str) -> dict[str, Any]:
    tensor = Tensor("TEXT", "BYTES", (len(texts),), join_bytes([text.encode() for text in texts]))
    answer = await one.core.handle(one.principal, infer(tensor), {}, one.record())
    return {name: array_of(value) for name, value in (await outputs(answer)).items()}


async def test_the_tokens_are_those_of_the_model_s_own_server() -> None:
    texts = ["ab", f"{BEGIN}Wörter 😀", ""]
    async with language([encode(pad_id=5), USES_TENSORS], {**OUT, "end": "last.ids"}) as (one, running):
        made = await answered(one, *texts)
        for row, text in enumerate(texts):
            _, _, body = await post(running, "/tokenize", {"model": MODEL, "prompt": text})
            assert made["ids"][row][made["mask"][row] == 1].tolist() == body["tokens"]
            assert made["count"][row].tolist() == [body["count"]]
        assert set(made["ids"][made["mask"] == 0].tolist()) == {5}
        assert not np.any(made["types"])


async def test_a_long_text_is_refused_or_cut() -> None:
    async with language([encode(max_tokens=3), USES_TENSORS], OUT | {"end": "last.ids"}) as (one, _):
        with pytest.raises(ContextTooLong, match="has 4 tokens, and 3 are the most"):
            await answered(one, "abcd", "a")
    async with language([encode(max_tokens=3, too_long="cut"), USES_TENSORS], OUT | {"end": "last.ids"}) as (one, _):
        made = await answered(one, "abcd", "a")
        assert made["ids"].tolist() == [[64, 65, 66], [64, 0, 0]]


async def test_special_tokens_are_left_out_of_a_text_or_spelled() -> None:
    for skip_special, expected in ((True, "ab"), (False, f"{BEGIN}ab")):
        back = {**BACK, "detokenize": {"model": "lm", "skip_special": skip_special}}
        async with language([encode(), USES_TENSORS, back], {"text": "d.text", "end": "last.ids"}) as (one, _):
            made = await answered(one, f"{BEGIN}ab")
            assert made["text"].tolist() == [expected.encode()]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), min_size=1, max_size=12))
async def test_decoding_restores_every_batch(texts: list[str]) -> None:
    rows = [{**BACK, "in": {"ids": "t.ids"}}, USES_TENSORS]
    async with language([encode(), *rows], {"text": "d.text", "end": "last.ids", "mask": "t.mask"}) as (one, _):
        longest = max(len(text.encode()) for text in texts)
        made = await answered(one, *(text.ljust(len(text) + longest - len(text.encode()), "-") for text in texts))
        restored = [text.decode().rstrip("-") for text in made["text"].tolist()]
        assert restored == [text.rstrip("-") for text in texts]


async def test_a_chat_without_a_model_of_tensors() -> None:
    steps = [{"name": "t", "in": {"text": "request.text"}, "tokenize": {"model": "lm"}}, BACK]
    async with language(steps, {"text": "d.text"}) as (one, _):
        assert await text(one, messages=[{"role": "user", "content": "hello"}]) == "hello"


async def test_mistakes_of_the_client_and_of_the_server() -> None:
    async with language([encode(), USES_TENSORS], OUT | {"end": "last.ids"}) as (one, _):
        with pytest.raises(CallerError, match="has more than 256 tokens"):
            await answered(one, "a" * 300_000)
    steps = [{"name": "d", "in": {"ids": "request.IDS"}, "detokenize": {"model": "lm"}}]
    for data, error in ((-1, "negative token"), (9999, "no token of this model")):
        async with language([*steps, {"name": "last", "model": "m", "in": {"ids": "request.IDS"}}],
                            {"text": "d.text", "end": "last.ids"}) as (one, _):  # fmt: skip
            tensor = Tensor("IDS", "INT64", (1,), data.to_bytes(8, "little", signed=True))
            with pytest.raises((CallerError, StepFailed), match=error):
                await one.core.handle(one.principal, infer(tensor), {}, one.record())
    wrong = FakeAdapter(Script(chunks=(b'{"prompt": 1}',)))
    one = rig({"steps": [encode(), {"name": "end", "model": "m", "in": {"x": "t.ids"}}]},
              {"lm": wrong, "m": infers(Tensor("ids", "INT64", (1, 1), bytes(8)))}, tensors="m")  # fmt: skip
    with pytest.raises(StepFailed, match="no tokens and no text"):
        await answered(one, "a")
    one.assert_idle()
