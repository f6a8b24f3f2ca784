"""Tokens counted by servers of OpenAI's family, and by those that cannot."""

import json
from typing import Any

import pytest

from adapters.errors import CapacityError, InferenceError, TransportError, Unsupported
from adapters.http1.client import Client
from adapters.types import Usage
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.wire.anthropic import requests as wire
from tests.adapters.http1.scripted import ReceivedRequest, answers, scripted
from tests.support.openai_answers import http, recording, within

COUNT = http(json.dumps({"count": 7, "max_model_len": 100, "tokens": [1] * 7}).encode())


def count(**fields: Any) -> Any:
    body = {"model": "ours", "system": "Be kind.", "messages": [{"role": "user", "content": "hi"}], **fields}
    return wire.decode_count(json.dumps(body).encode())


async def test_the_prompt_is_tokenized_like_the_chat() -> None:
    received: list[ReceivedRequest] = []
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    async with scripted(recording(received, COUNT)) as upstream:
        adapter = OpenAIAdapter(Client(f"{upstream.url}/v1"), model="real")
        answer = await adapter.call(count(tools=tools, thinking={"type": "disabled"}), within())
        await adapter.aclose()
    assert answer.body == b'{"input_tokens":7}'
    assert answer.usage == Usage(exact=True)
    (only,) = received
    assert only.line == "POST /tokenize HTTP/1.1"
    sent = json.loads(only.body)
    assert sent.keys() == {"model", "messages", "tools"}
    assert sent["model"] == "real"
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]


async def test_our_engine_counts_a_prompt_without_thoughts() -> None:
    received: list[ReceivedRequest] = []
    async with scripted(recording(received, COUNT)) as upstream:
        adapter = OpenAIAdapter(Client(f"{upstream.url}/v1"), ours=True)
        await adapter.call(count(thinking={"type": "disabled"}), within())
        await adapter.aclose()
    assert json.loads(received[0].body)["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}


@pytest.mark.parametrize("status", [401, 403, 404, 405, 501])
async def test_a_server_without_the_path_is_not_retried_at_once(status: int) -> None:
    async with scripted(answers(http(b"{}", "application/json", status))) as upstream:
        adapter = OpenAIAdapter(Client(upstream.url))
        for _ in range(2):
            with pytest.raises(Unsupported):
                await adapter.call(count(), within())
        await adapter.aclose()
    assert upstream.accepted == 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (http(b'{"tokens":[1]}'), Unsupported),
        (http(b"<html>", "text/html"), Unsupported),
        (http(b"{}", "application/json", 400), Unsupported),
        (http(b"{}", "application/json", 503), CapacityError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", TransportError),
    ],
)
async def test_a_malformed_count_is_an_error(answer: bytes, kind: type[InferenceError]) -> None:
    async with scripted(answers(answer)) as upstream:
        adapter = OpenAIAdapter(Client(upstream.url))
        with pytest.raises(kind):
            await adapter.call(count(), within())
        await adapter.aclose()


@pytest.mark.runtimes
async def test_our_own_runtime_counts_the_tokens_that_it_charges() -> None:
    from tests.runtimes.llm.server_fixtures import MODEL, serving

    async with serving() as running:
        adapter = OpenAIAdapter(Client(running.url), model=MODEL)
        answer = await adapter.call(count(), within())
        assert answer.body is not None
        counted = json.loads(answer.body)["input_tokens"]
        request = wire.decode_message(
            b'{"model":"ours","max_tokens":3,"system":"Be kind.","messages":[{"role":"user","content":"hi"}]}'
        )
        message = await adapter.call(request, within())
        assert message.usage.prompt_tokens == counted
        await adapter.aclose()
