"""Azure OpenAI, against a server with its paths, its filter of content and its odd chunks."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai as sdk
import pytest

from adapters.base import Adapter
from adapters.errors import BackendError, CallerError, CapacityError
from adapters.registry import Address, make
from adapters.wire import sse
from adapters.wire.openai import chat as openai
from adapters.wire.responses import requests as responses
from tests.support.doors import Before, door
from tests.support.gateways import config
from tests.support.openai_answers import within
from tests.support.providers.azure import DEPLOYMENT, FILTERED, KEY, TOKEN, VERSION, Azure, azure

Object = dict[str, Any]
FORMS: dict[str, Object] = {"v1": {}, "deployments": {"api_version": VERSION}}


def chat(text: str = "hi", **fields: Any) -> bytes:
    return json.dumps({"model": "ours", "messages": [{"role": "user", "content": text}], **fields}).encode()


@asynccontextmanager
async def through(form: str = "v1", **fields: Any) -> AsyncIterator[tuple[Adapter, Azure]]:
    async with azure() as server:
        protocol = {"name": "openai", "dialect": "azure", **FORMS.get(form, {"api_version": form})}
        section = {"name": "main", "endpoints": [server.url], "model": DEPLOYMENT, "key": KEY, **fields}
        adapter = make(config(pools=[{"protocol": protocol, **section}]).pools[0], Address(server.url))
        yield adapter, server
        await adapter.aclose()


async def streamed(adapter: Adapter, request: Any) -> list[bytes]:
    written = b"".join([piece async for piece in await adapter.call(request, within())])
    return [data for event in written.strip().split(b"\n\n") if (data := sse.data_of(event))]


async def test_the_official_client_accepts_the_server() -> None:
    async with azure() as server:
        own: Object = {"azure_endpoint": server.url, "max_retries": 0}
        ways: list[Object] = [{"api_key": KEY}, {"azure_ad_token": TOKEN}]
        for way in ways:
            async with sdk.AsyncAzureOpenAI(api_version=VERSION, **own, **way) as client:
                answer = await client.chat.completions.create(
                    model=DEPLOYMENT, messages=[{"role": "user", "content": "hi"}]
                )
                assert answer.choices[0].message.content == "hi"
                with pytest.raises(sdk.BadRequestError) as refused:
                    await client.chat.completions.create(
                        model=DEPLOYMENT, messages=[{"role": "user", "content": "!hate"}]
                    )
                assert refused.value.code == "content_filter"
        assert server.targets[0] == f"/openai/deployments/{DEPLOYMENT}/chat/completions?api-version={VERSION}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", [{"key": KEY}, {"key": TOKEN, "key_header": "authorization"}])
async def test_chats_embeddings_and_the_health_check(form: str, key: Object) -> None:
    async with through(form, **key) as (adapter, server):
        answer = await adapter.call(openai.decode_chat(chat(max_tokens=9)), within())
        assert answer.usage.total_tokens == 7
        assert server.bodies[-1]["max_completion_tokens"] == 9
        vectors = await adapter.call(openai.decode_embedding(b'{"model": "ours", "input": ["a", "b"]}'), within())
        assert vectors.usage.prompt_tokens == 2
        await adapter.probe(1.0)
        many = json.dumps({"model": "ours", "input": ["a"] * 2049}).encode()
        with pytest.raises(CallerError, match="array too long"):
            await adapter.call(openai.decode_embedding(many), within())


async def test_responses_are_beside_the_deployments() -> None:
    async with through("deployments") as (adapter, server):
        request = responses.decode_native(json.dumps({"model": "ours", "input": "hi"}).encode())
        answer = await adapter.call(request, within())
        assert answer.body is not None
        assert server.targets == [f"/openai/responses?api-version={VERSION}"]
        assert server.bodies[0]["model"] == DEPLOYMENT


async def test_versions_before_the_new_name_of_the_length() -> None:
    async with through("2024-02-01") as (adapter, server):
        await adapter.call(openai.decode_chat(chat(max_completion_tokens=9)), within())
        assert server.bodies[0]["max_tokens"] == 9
        await streamed(adapter, openai.decode_chat(chat(stream=True)))


@pytest.mark.parametrize("form", FORMS)
async def test_the_verdict_of_the_filter_comes_with_a_refused_prompt(form: str) -> None:
    async with through(form) as (adapter, _):
        with pytest.raises(CallerError) as refused:
            await adapter.call(openai.decode_chat(chat("!hate")), within())
    error = refused.value
    assert (error.code, error.blames_endpoint, error.retryable) == ("content_filter", False, False)
    assert (
        json.loads(openai.encode_error(error, "invalid_request_error"))["error"]["innererror"]
        == (FILTERED["error"]["innererror"])
    )


async def test_an_answer_that_the_filter_cuts() -> None:
    async with through() as (adapter, _):
        answer = await adapter.call(openai.decode_chat(chat("!filtered")), within())
        choice = json.loads(answer.body or b"")["choices"][0]
        assert (choice["finish_reason"], choice["content_filter_results"]["hate"]["filtered"]) == (
            "content_filter",
            True,
        )
        last = json.loads((await streamed(adapter, openai.decode_chat(chat("!filtered", stream=True))))[-2])
        assert last["choices"][0]["finish_reason"] == "content_filter"


async def test_odd_chunks_are_forwarded_and_counted_once() -> None:
    async with through() as (adapter, _):
        answer = await adapter.call(openai.decode_chat(chat(stream=True)), within())
        data = b"".join([piece async for piece in answer])
        assert b"prompt_filter_results" in data
        assert b"content_filter_offsets" in data
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.exact) == (5, 2, True)


async def test_a_burst_and_a_wrong_key() -> None:
    async with through() as (adapter, _):
        with pytest.raises(CapacityError) as full:
            await adapter.call(openai.decode_chat(chat("!burst")), within())
        assert full.value.retry_after == 1.5
    async with through(key="no") as (adapter, _):
        with pytest.raises(BackendError, match="credential"):
            await adapter.call(openai.decode_chat(chat()), within())
    async with through(model="another") as (adapter, _):
        with pytest.raises(BackendError, match="does not know the model"):
            await adapter.call(openai.decode_chat(chat()), within())


async def test_a_message_over_the_chunks_of_azure() -> None:
    """The chunks without a choice, an id or a delta have no event, and break none."""
    async with azure() as server:
        protocol = {"name": "openai", "dialect": "azure"}
        section = {"name": "main", "endpoints": [server.url], "model": DEPLOYMENT, "key": KEY, "protocol": protocol}
        adapter = make(config(pools=[section]).pools[0], Address(server.url))
        async with door(Before(adapter)) as d:
            fields: Any = {"model": "chat", "max_tokens": 20, "messages": [{"role": "user", "content": "hi"}]}
            async with d.anthropic.messages.stream(**fields) as stream:
                message = await stream.get_final_message()
            assert message.content[0].type == "text"
            assert (message.content[0].text, message.usage.output_tokens) == ("hi", 2)
            made = await d.openai.responses.create(model="chat", input="hi", stream=True)
            events = [event async for event in made]
            assert events[-1].type == "response.completed"
            refused = await d.send("POST", "/v1/chat/completions", json.loads(chat("!hate")) | {"model": "chat"})
            assert (await refused.json())["error"]["innererror"]["code"] == "ResponsibleAIPolicyViolation"
        await adapter.aclose()
