"""Text Generation Inference by its own API, against a server that follows its API document."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ClientGone,
    ContextTooLong,
    TransportError,
    Unsupported,
)
from adapters.http1.client import Client
from adapters.requests import GenerateRequest
from adapters.types import ANTHROPIC, Deadline, Usage
from adapters.upstreams.text.chat_template import load
from adapters.upstreams.text.prompts import Prompts
from adapters.upstreams.text.tgi import TgiAdapter
from adapters.wire import sse
from adapters.wire.anthropic import requests as anthropic
from adapters.wire.openai import chat as openai
from tests.adapters.http1.raw import until
from tests.adapters.http1.scripted import Peer, answers, scripted
from tests.servers.stand_ins.tgi import Tgi, tgi
from tests.support.gateways import infer

PATIENCE = 300.0


def chat(text: str = "one two three", **fields: Any) -> GenerateRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **fields}
    return openai.decode_chat(json.dumps(body).encode())


def completion(prompt: Any = "one two three", **fields: Any) -> GenerateRequest:
    return openai.decode_completion(json.dumps({"model": "m", "prompt": prompt, **fields}).encode())


def within(total: float = PATIENCE) -> Call:
    return Call(Deadline(asyncio.get_running_loop().time() + total, PATIENCE, PATIENCE), "id-1")


@asynccontextmanager
async def adapting(server: Tgi, template: str | None = "chatml", **options: Any) -> AsyncIterator[TgiAdapter]:
    adapter = TgiAdapter(Client(server.url), Prompts(load(template) if template else None), **options)
    try:
        yield adapter
    finally:
        await adapter.aclose()


async def whole(request: GenerateRequest, **sizes: int) -> dict[str, Any]:
    async with tgi(**sizes) as server, adapting(server) as adapter:
        answer = await adapter.call(request, within())
        assert answer.content_type == "application/json"
        response: dict[str, Any] = json.loads(answer.body or b"")
        usage = response["usage"]
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (
            usage["prompt_tokens"],
            usage["completion_tokens"],
        )
        return response


async def chunks(answer: Answer) -> list[dict[str, Any]]:
    """A stream's chunks, which end as OpenAI's do."""
    events = [event for event in b"".join([piece async for piece in answer]).split(b"\n\n") if event != b":"]
    assert events[-2:] == [b"data: [DONE]", b""]
    return [json.loads(sse.data_of(event)) for event in events[:-2]]


async def streamed(request: GenerateRequest) -> tuple[list[dict[str, Any]], Usage]:
    async with tgi() as server, adapting(server) as adapter:
        answer = await adapter.call(request, within())
        response = await chunks(answer)
        assert answer.ended
        assert answer.error is None
        return response, answer.usage


# ── whole answers ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_chat() -> None:
    response = await whole(chat())
    assert response == {
        "id": "chatcmpl-id-1",
        "object": "chat.completion",
        "created": response["created"],
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "one two three", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 6, "completion_tokens": 4, "total_tokens": 10},
    }


async def test_a_completion() -> None:
    response = await whole(completion(max_tokens=2))
    choice = {"index": 0, "text": "one two", "logprobs": None, "finish_reason": "length"}
    assert (response["object"], response["choices"]) == ("text_completion", [choice])


async def test_requests_have_the_fields_of_its_documentation() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    request = chat(
        max_completion_tokens=7, temperature=0.5, top_p=0.9, top_k=5, typical_p=0.8, seed=-1, stop="x", user="u",
        frequency_penalty=0.5, repetition_penalty=1.1, presence_penalty=0, n=1, logit_bias={}, tools=[],
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
    )  # fmt: skip
    async with tgi() as server, adapting(server, model="customer-support") as adapter:
        await adapter.call(request, within())
    [body], [headers] = server.received, server.headers
    assert body == {
        "inputs": "<|im_start|>user\none two three<|im_end|>\n<|im_start|>assistant\n",
        "parameters": {
            "details": True, "max_new_tokens": 7, "do_sample": True, "temperature": 0.5, "top_p": 0.9,
            "typical_p": 0.8, "top_k": 5, "seed": 2**64 - 1, "stop": ["x"], "frequency_penalty": 0.5,
            "repetition_penalty": 1.1, "adapter_id": "customer-support",
            "grammar": {"type": "json", "value": schema},
        },
    }  # fmt: skip
    assert {name.lower(): value for name, value in headers.items()}["x-request-id"] == "id-1"


async def test_values_without_effect_are_omitted() -> None:
    request = chat(temperature=0, top_p=1, top_k=-1, stop=None, logprobs=False, response_format={"type": "text"})
    async with tgi() as server, adapting(server) as adapter:
        await adapter.call(request, within())
    assert server.received[0]["parameters"] == {"details": True, "do_sample": False}


async def test_a_stop_text_is_not_returned() -> None:
    response = await whole(chat("one two three four", stop=["three"]))
    assert response["choices"][0]["message"]["content"] == "one two "
    assert response["choices"][0]["finish_reason"] == "stop"


async def test_logprobs_of_a_chat() -> None:
    response = await whole(chat("one two", logprobs=True, top_logprobs=2))
    first, second = response["choices"][0]["logprobs"]["content"]
    assert (first["token"], first["logprob"], first["bytes"]) == ("one", -0.25, list(b"one"))
    assert [(top["token"], top["logprob"]) for top in second["top_logprobs"]] == [(" two", -0.25), (" two0", -1.0)]


async def test_an_echo_with_the_prompts_own_tokens() -> None:
    response = await whole(completion("a b", echo=True, logprobs=1))
    [choice] = response["choices"]
    assert choice["text"] == "a ba b"
    assert choice["logprobs"]["tokens"] == ["a", " b", "a", " b"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 3, 4]
    assert choice["logprobs"]["top_logprobs"][-1] == {" b": -0.25}


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_streamed_chat() -> None:
    response, usage = await streamed(chat(stream=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in response]
    opening: dict[str, Any] = {"role": "assistant", "content": ""}
    assert deltas == [opening, {"content": "one"}, {"content": " two"}, {"content": " three"}, {}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in response] == [None] * 4 + ["stop"]
    assert {chunk["object"] for chunk in response} == {"chat.completion.chunk"}
    assert "usage" not in response[0]
    assert (usage.prompt_tokens, usage.completion_tokens, usage.exact) == (6, 4, True)
    assert usage.bytes > 0


async def test_a_streamed_completion_with_usage() -> None:
    response, _ = await streamed(completion(stream=True, max_tokens=2, stream_options={"include_usage": True}))
    assert [chunk["choices"][0]["text"] for chunk in response[:-1]] == ["one", " two", ""]
    assert [chunk["usage"] for chunk in response[:-1]] == [None] * 3
    assert response[-2]["choices"][0]["finish_reason"] == "length"
    assert (response[-1]["choices"], response[-1]["usage"]["total_tokens"]) == ([], 5)


@pytest.mark.parametrize("stop", ["three", "o thr", "two three", "ee"])
async def test_a_stop_text_is_not_streamed(stop: str) -> None:
    """The beginning of a stop text is withheld too, although it spans several tokens."""
    response, _ = await streamed(completion("one two three four", stream=True, stop=stop))
    text = "".join(chunk["choices"][0]["text"] for chunk in response)
    assert text == "one two three four".partition(stop)[0]
    assert response[-1]["choices"][0]["finish_reason"] == "stop"


async def test_a_streamed_echo() -> None:
    response, _ = await streamed(completion("one two", stream=True, echo=True))
    assert "".join(chunk["choices"][0]["text"] for chunk in response) == "one twoone two"


async def test_streamed_likelihoods() -> None:
    response, _ = await streamed(chat("one two", stream=True, logprobs=True))
    tokens = [
        one["token"] for chunk in response for one in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert tokens == ["one", " two"]


async def test_a_client_that_leaves_stops_the_server() -> None:
    async with tgi() as server, adapting(server) as adapter:
        server.gap = 0.01
        answer = await adapter.call(chat("word " * 500, stream=True, max_tokens=600), within())
        await anext(answer)
        await answer.aclose()
        assert isinstance(answer.error, ClientGone)
        await until(lambda: server.abandoned == 1)
        assert server.running == 0


async def test_connections_are_used_again_after_streams() -> None:
    async with tgi() as server:
        client = Client(server.url)
        adapter = TgiAdapter(client, Prompts(load("chatml")))
        for _ in range(3):
            await chunks(await adapter.call(chat(stream=True), within()))
            assert client.connections == 1
        await adapter.aclose()


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [False, True])
async def test_refusals(stream: bool) -> None:
    """Errors of a stream are events after a status of 200."""
    async with tgi(max_input=20, max_total=40) as server, adapting(server) as adapter:
        with pytest.raises(ContextTooLong):
            await adapter.call(chat("word " * 50, stream=stream), within())
        with pytest.raises(ContextTooLong):
            await adapter.call(chat(stream=stream, max_tokens=39), within())
        with pytest.raises(CallerError, match="stop sequences"):
            await adapter.call(chat(stream=stream, max_tokens=3, stop=list("abcde")), within())
        server.full = True
        with pytest.raises(CapacityError):
            await adapter.call(chat(stream=stream), within())


@pytest.mark.parametrize("stream", [False, True])
async def test_a_generation_that_fails_is_the_servers_fault(stream: bool) -> None:
    async with tgi() as server, adapting(server) as adapter:
        server.fails_after = 0
        with pytest.raises(BackendError) as caught:
            await adapter.call(chat(stream=stream), within())
        assert "/opt" not in caught.value.message


async def test_a_generation_that_fails_in_the_middle() -> None:
    async with tgi() as server, adapting(server) as adapter:
        server.fails_after = 2
        answer = await adapter.call(completion(stream=True), within())
        received = []
        with pytest.raises(BackendError):
            received += [piece async for piece in answer]
        assert isinstance(answer.error, BackendError)
        assert b"[DONE]" not in b"".join(received)


async def test_a_stream_that_ends_before_its_last_token_is_broken() -> None:
    async with tgi() as server, adapting(server) as adapter:
        server.cut_after = 2
        answer = await adapter.call(completion(stream=True), within())
        with pytest.raises(TransportError):
            [piece async for piece in answer]


async def test_a_field_of_a_newer_client_is_left_out_and_reported() -> None:
    async with tgi() as server, adapting(server) as adapter:
        call = within()
        await adapter.call(chat(field_of_the_next_release=1), call)
    assert call.ignored.ignored == ["field_of_the_next_release"]


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"tools": [{"type": "function"}]},
        {"logit_bias": {"1": 2}},
        {"presence_penalty": 1},
        {"modalities": ["audio"]},
        {"adapter_id": "anybody's"},
        {"best_of": 2, "stream": True},
    ],
)
async def test_fields_that_it_lacks_are_refused(fields: dict[str, Any]) -> None:
    async with tgi() as server, adapting(server) as adapter:
        with pytest.raises(Unsupported) as caught:
            await adapter.call(chat(**fields), within())
        assert caught.value.param == next(iter(fields))
        assert server.received == []


@pytest.mark.parametrize("prompt", [[1, 2], ["a", "b"], [[1]]])
async def test_prompts_are_one_text(prompt: Any) -> None:
    async with tgi() as server, adapting(server) as adapter:
        with pytest.raises(Unsupported, match="one text"):
            await adapter.call(completion(prompt), within())
        answer = await adapter.call(completion(["one"]), within())
        assert json.loads(answer.body or b"")["choices"][0]["text"] == "one"


async def test_without_a_template_there_are_completions_only() -> None:
    async with tgi() as server, adapting(server, None) as adapter:
        with pytest.raises(Unsupported, match="chat_template"):
            await adapter.call(chat(), within())
        with pytest.raises(Unsupported, match="generates text"):
            await adapter.call(infer(), within())
        assert (await adapter.call(completion(), within())).body


async def test_a_prompts_tokens_are_counted_by_the_server() -> None:
    """The calls of tools that its template produces."""
    body = {"model": "m", "messages": [{"role": "user", "content": "one two three"}]}
    async with tgi() as server, adapting(server) as adapter:
        answer = await adapter.call(anthropic.decode_count(json.dumps(body).encode()), within())
        assert json.loads(answer.body or b"") == {"input_tokens": 6}
        assert answer.form == ANTHROPIC
        server.has_tokenizer = False
        with pytest.raises(Unsupported, match="do not count tokens"):
            await adapter.call(anthropic.decode_count(json.dumps(body).encode()), within())


async def test_a_message_of_anthropics_is_a_chat() -> None:
    body = {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "one two three"}]}],
        "stop_sequences": ["three"],
        "temperature": 0.5,
        "metadata": {"user_id": "u"},
    }
    async with tgi() as server, adapting(server) as adapter:
        answer = await adapter.call(anthropic.decode_message(json.dumps(body).encode()), within())
    assert json.loads(answer.body or b"")["choices"][0]["message"]["content"] == "one two "
    [sent] = server.received
    assert sent["inputs"].startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\none two three")
    assert sent["parameters"]["max_new_tokens"] == 9


async def test_health() -> None:
    async with tgi() as server, adapting(server) as adapter:
        await adapter.probe(PATIENCE)
        server.healthy = False
        with pytest.raises(BackendError, match="503"):
            await adapter.probe(PATIENCE)


def http(body: bytes, content_type: str = "application/json") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        content_type.encode(), len(body), body,
    )  # fmt: skip


TOKEN = b'data:{"token":{"text":"a","special":false},"generated_text":null}\n\n'
BAD = {
    "HTML": (http(b"<html>", "text/html"), False),
    "no JSON": (http(b"oops"), False),
    "no details": (http(b'{"generated_text":"a"}'), False),
    "no text": (http(b'{"details":{"finish_reason":"length"}}'), False),
    "an error with 200": (http(b'{"error":"CUDA","error_type":"generation"}'), False),
    "a count that is none": (
        http(b'{"generated_text":"a","details":{"finish_reason":"x","generated_tokens":-1}}'),
        False,
    ),
    "no stream": (http(b'{"generated_text":"a"}'), True),
    "an event that is no JSON": (http(b"data: oops\n\n", "text/event-stream"), True),
    "an event without a token": (http(b"data: {}\n\n", "text/event-stream"), True),
    "invalid UTF-8": (http(b'data: {"token":{"text":"\xff"}}\n\n', "text/event-stream"), True),
    "a number that JSON has not": (http(b'data: {"token":{"text":"a","logprob":NaN}}\n\n', "text/event-stream"), True),
}  # fmt: skip


@pytest.mark.parametrize(("answer", "stream"), BAD.values(), ids=BAD.keys())
async def test_a_malformed_answer_is_a_backend_error(answer: bytes, stream: bool) -> None:
    async with scripted(answers(answer)) as upstream:
        adapter = TgiAdapter(Client(upstream.url))
        with pytest.raises(BackendError):
            await adapter.call(completion(stream=stream), within())
        await adapter.aclose()


async def test_garbage_after_a_first_token_breaks_the_stream() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + TOKEN)
        await begun.wait()
        peer.send(b'data: {"oops"\n\n')

    begun = asyncio.Event()
    async with scripted(play) as upstream:
        adapter = TgiAdapter(Client(upstream.url))
        answer = await adapter.call(completion(stream=True), within())
        assert b'"text":"a"' in await anext(answer)
        begun.set()
        with pytest.raises(BackendError):
            await anext(answer)
        await adapter.aclose()
