"""Servers of OpenAI's protocol that have completions only, or chats only."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from adapters import registry
from adapters.base import Adapter, Answer
from adapters.call import Call
from adapters.errors import CallerError, ClientGone, TransportError, Unsupported
from adapters.registry import Address
from adapters.requests import GenerateRequest
from adapters.types import Deadline, Usage
from adapters.wire import sse
from adapters.wire.openai import chat as openai
from tests.adapters.http1.raw import until
from tests.servers.stand_ins.serving import serving
from tests.support.gateways import config

PATIENCE = 300.0
PROMPT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
TEXT_LOGPROBS = {
    "tokens": ["a", " b"],
    "token_logprobs": [None, -0.5],
    "top_logprobs": [None, {" b": -0.5, " c": -1.5}],
}
CHAT_LOGPROBS = {
    "content": [
        {"token": "a", "logprob": -9999.0, "bytes": [97], "top_logprobs": []},
        {
            "token": " b",
            "logprob": -0.5,
            "bytes": [32, 98],
            "top_logprobs": [
                {"token": " b", "logprob": -0.5, "bytes": [32, 98]},
                {"token": " c", "logprob": -1.5, "bytes": [32, 99]},
            ],
        },
    ],
    "refusal": None,
}


class Server:
    """Serves one of the two paths, and generates `a b` on it."""

    def __init__(self, only: str) -> None:
        self.only = only
        self.received: list[dict[str, Any]] = []
        self.logprobs: Any = None
        self.breaks = False
        self.waits = asyncio.Event()
        self.waits.set()
        self.abandoned = 0
        self.url = ""

    def app(self) -> web.Application:
        app = web.Application()
        path = "/v1/completions" if self.only == "completions" else "/v1/chat/completions"
        app.router.add_post(path, self._answer)
        return app

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        self.received.append(body)
        kind = "text_completion" if self.only == "completions" else "chat.completion"
        head = {"id": "x-1", "created": 7, "model": "theirs", "object": kind}
        if not body.get("stream"):
            choices = [self._choice(i, "a b", "stop", whole=True) for i in range(body.get("n") or 1)]
            return web.json_response({**head, "choices": choices, "usage": USAGE})
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        try:
            for text, reason in (("a", None), (" b", None), ("", "length")):
                choice = self._choice(0, text, reason, whole=False)
                await response.write(sse.encode(json.dumps({**head, "choices": [choice], "usage": None}).encode()))
                await self.waits.wait()
                if self.breaks:
                    return response
        except asyncio.CancelledError:
            self.abandoned += 1
            raise
        await response.write(sse.encode(json.dumps({**head, "choices": [], "usage": USAGE}).encode()))
        await response.write(b"data: [DONE]\n\n")
        return response

    def _choice(self, index: int, text: str, reason: str | None, *, whole: bool) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "finish_reason": reason, "logprobs": self.logprobs}
        if self.only == "completions":
            return {**choice, "text": text}
        turn = {"role": "assistant", "content": text}
        return {**choice, "message" if whole else "delta": turn}


@asynccontextmanager
async def adapting(only: str, **options: Any) -> AsyncIterator[tuple[Adapter, Server]]:
    server = Server(only)
    if only == "completions":
        options = {"chat_template": "chatml", **options}
    protocol = {"name": "openai", "only": only, **options}
    async with serving(server.app()) as server.url:
        pool = config(pools=[{"name": "main", "protocol": protocol, "endpoints": [server.url]}]).pools[0]
        adapter = registry.make(pool, Address(server.url))
        try:
            yield adapter, server
        finally:
            await adapter.aclose()


def chat(**fields: Any) -> GenerateRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    return openai.decode_chat(json.dumps(body).encode())


def completion(**fields: Any) -> GenerateRequest:
    return openai.decode_completion(json.dumps({"model": "m", "prompt": "hi", **fields}).encode())


def within() -> Call:
    return Call(Deadline(asyncio.get_running_loop().time() + PATIENCE, PATIENCE, PATIENCE))


async def chunks(answer: Answer) -> list[dict[str, Any]]:
    events = b"".join([piece async for piece in answer]).split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""]
    return [json.loads(sse.data_of(event)) for event in events[:-2]]


# ── completions only ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_chat_becomes_a_prompt() -> None:
    request = chat(temperature=0.5, top_k=3, stop="x", user="u", tools=[], modalities=["text"], max_completion_tokens=9)
    async with adapting("completions") as (adapter, server):
        answer = await adapter.call(request, within())
        assert json.loads(answer.body or b"") == {
            "id": "x-1",
            "object": "chat.completion",
            "created": 7,
            "model": "theirs",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "a b", "refusal": None},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": USAGE,
        }
        assert answer.usage.prompt_tokens == 5
    [body] = server.received
    own = {"temperature": 0.5, "top_k": 3, "stop": "x", "user": "u"}
    assert body == {"model": "m", "prompt": PROMPT, "max_tokens": 9, **own}


async def test_a_chat_that_names_no_length_does_not_end_after_sixteen_tokens() -> None:
    async with adapting("completions", max_tokens=500) as (adapter, server):
        await adapter.call(chat(), within())
        await adapter.call(chat(max_tokens=7), within())
        assert [body["max_tokens"] for body in server.received] == [500, 7]


async def test_several_answers_to_a_chat() -> None:
    async with adapting("completions") as (adapter, _):
        answer = await adapter.call(chat(n=2), within())
        choices = json.loads(answer.body or b"")["choices"]
        assert [choice["message"]["content"] for choice in choices] == ["a b", "a b"]


async def test_a_streamed_chat() -> None:
    async with adapting("completions") as (adapter, _):
        answer = await adapter.call(chat(stream=True), within())
        streamed = await chunks(answer)
        choices = [chunk["choices"][0] for chunk in streamed]
        assert [choice["delta"] for choice in choices] == [{"role": "assistant", "content": "a"}, {"content": " b"}, {}]
        assert [choice["finish_reason"] for choice in choices] == [None, None, "length"]
        assert {chunk["object"] for chunk in streamed} == {"chat.completion.chunk"}
        usage = answer.usage
        assert (usage.prompt_tokens, usage.completion_tokens, usage.exact) == (5, 3, True)
        assert (answer.ended, answer.error) == (True, None)
        with_usage = await chunks(
            await adapter.call(chat(stream=True, stream_options={"include_usage": True}), within())
        )
        assert (with_usage[-1]["choices"], with_usage[-1]["usage"]) == ([], USAGE)


async def test_logprobs_of_a_chat() -> None:
    async with adapting("completions") as (adapter, server):
        server.logprobs = TEXT_LOGPROBS
        answer = await adapter.call(chat(logprobs=True, top_logprobs=2), within())
        assert json.loads(answer.body or b"")["choices"][0]["logprobs"] == CHAT_LOGPROBS
        assert server.received[0]["logprobs"] == 2
        assert "top_logprobs" not in server.received[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function"}]},
        {"functions": [{"name": "f"}]},
        {"modalities": ["text", "audio"]},
        {"audio": {"voice": "x"}},
    ],
)
async def test_fields_of_chats_only_are_refused(fields: dict[str, Any]) -> None:
    async with adapting("completions") as (adapter, server):
        with pytest.raises(Unsupported) as caught:
            await adapter.call(chat(**fields), within())
        assert caught.value.param == next(iter(fields))
        assert server.received == []


async def test_tools_that_may_not_be_called_are_no_hindrance() -> None:
    async with adapting("completions") as (adapter, server):
        await adapter.call(chat(tools=[{"type": "function"}], tool_choice="none"), within())
        assert not {"tools", "tool_choice"} & server.received[0].keys()


async def test_completions_go_on_as_they_are() -> None:
    async with adapting("completions") as (adapter, server):
        answer = await adapter.call(completion(echo=True), within())
        assert json.loads(answer.body or b"")["choices"][0]["text"] == "a b"
        assert server.received == [{"prompt": "hi", "echo": True, "model": "m"}]


async def test_a_conversation_that_the_template_refuses() -> None:
    async with adapting("completions", chat_template="mistral") as (adapter, server):
        with pytest.raises(CallerError, match="take turns"):
            await adapter.call(chat(messages=[{"role": "assistant", "content": "x"}]), within())
        assert server.received == []


async def test_without_a_template_chats_are_refused() -> None:
    async with adapting("completions", chat_template=None) as (adapter, _):
        with pytest.raises(Unsupported, match="chat_template"):
            await adapter.call(chat(), within())


async def test_a_stream_that_breaks() -> None:
    async with adapting("completions") as (adapter, server):
        server.breaks = True
        answer = await adapter.call(chat(stream=True), within())
        with pytest.raises(TransportError):
            await chunks(answer)
        assert answer.usage.completion_tokens == 1


async def test_a_client_that_leaves_stops_the_server() -> None:
    async with adapting("completions") as (adapter, server):
        server.waits.clear()
        answer = await adapter.call(chat(stream=True), within())
        await anext(answer)
        await answer.aclose()
        assert isinstance(answer.error, ClientGone)
        assert isinstance(answer.usage, Usage)
        await until(lambda: server.abandoned == 1)


# ── chats only ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_prompt_becomes_a_chat() -> None:
    async with adapting("chats") as (adapter, server):
        answer = await adapter.call(completion(temperature=0), within())
        response = json.loads(answer.body or b"")
        assert response["object"] == "text_completion"
        assert response["choices"] == [{"index": 0, "text": "a b", "logprobs": None, "finish_reason": "stop"}]
        messages = [{"role": "user", "content": "hi"}]
        assert server.received == [{"model": "m", "messages": messages, "max_tokens": 16, "temperature": 0}]


async def test_a_streamed_completion() -> None:
    async with adapting("chats") as (adapter, _):
        streamed = await chunks(await adapter.call(completion(stream=True), within()))
        assert [chunk["choices"][0]["text"] for chunk in streamed] == ["a", " b", ""]
        assert streamed[-1]["choices"][0]["finish_reason"] == "length"


async def test_logprobs_of_a_completion() -> None:
    async with adapting("chats") as (adapter, server):
        server.logprobs = CHAT_LOGPROBS
        answer = await adapter.call(completion(logprobs=2), within())
        logprobs = json.loads(answer.body or b"")["choices"][0]["logprobs"]
        assert (server.received[0]["logprobs"], server.received[0]["top_logprobs"]) == (True, 2)
        assert logprobs["tokens"] == ["a", " b"]
        assert logprobs["top_logprobs"][1] == {" b": -0.5, " c": -1.5}
        assert logprobs["text_offset"] == [0, 1]


@pytest.mark.parametrize("fields", [{"echo": True}, {"suffix": "x"}, {"best_of": 2}, {"prompt": [1, 2]}])
async def test_fields_of_completions_only_are_refused(fields: dict[str, Any]) -> None:
    async with adapting("chats") as (adapter, _):
        with pytest.raises(Unsupported) as caught:
            await adapter.call(completion(**fields), within())
        assert caught.value.param == next(iter(fields))


async def test_chats_go_on_as_they_are() -> None:
    async with adapting("chats") as (adapter, server):
        answer = await adapter.call(chat(tools=[{"type": "function"}]), within())
        assert json.loads(answer.body or b"")["choices"][0]["message"]["content"] == "a b"
        assert server.received[0]["tools"]


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ({"name": "openai", "chat_template": "chatml"}, "chat_template is for servers that have completions only"),
        ({"name": "openai", "only": "chats", "max_tokens": 3}, "max_tokens is for servers that have completions only"),
    ],
)
def test_options_without_effect_are_refused(protocol: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(pools=[{"name": "main", "protocol": protocol, "endpoints": ["http://127.0.0.1:9"]}])
