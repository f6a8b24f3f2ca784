"""Anthropic's door over a real socket, with its official client before it and scripted upstreams behind it."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import anthropic
import pytest
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock

from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ContextTooLong,
    DeadlineError,
    InferenceError,
    TransportError,
    Unsupported,
)
from adapters.fake import FakeAdapter, Script
from adapters.types import ANTHROPIC, Usage
from adapters.wire.anthropic.message_request import MessagesRequest, TokenCount
from adapters.wire.openai import kept_signatures
from tests.support.chats import DONE, USAGE, chunk, completion
from tests.support.doors import Door, door, uncertified
from tests.support.talkers import PROMPT, talkers

Object = dict[str, Any]
TOOL: Any = {"name": "weather", "description": "What it is like", "input_schema": {"type": "object", "properties": {}}}
HELLO: Any = [{"role": "user", "content": "hi"}]


def whole(content: str | None = "Hello!", finish: str = "stop", **message: Any) -> FakeAdapter:
    return FakeAdapter(Script(chunks=(completion(content, finish, **message),), usage=Usage(9, 4, exact=True)))


ROLE = chunk({"role": "assistant", "content": ""})
LAST = (chunk(None, usage=USAGE), DONE)
TALK = (ROLE, chunk({"content": "Hel"}), b": ping\n\n", chunk({"content": "lo!"}), chunk({}, "stop"), *LAST)


def call(index: int, arguments: str, id_: str | None = None, name: str | None = None) -> Object:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"index": index, "function": function} | ({} if id_ is None else {"id": id_, "type": "function"})


def calls(*made: Object) -> bytes:
    return chunk({"tool_calls": list(made)})


def message_body(**fields: Any) -> Object:
    return {"model": "chat", "max_tokens": 20, "messages": HELLO, **fields}


async def read(stream: AsyncIterator[Any], received: list[str]) -> None:
    """Read a stream to its end; `received` has the events before a break."""
    async for event in stream:
        received += [event.type]


def opened(*fakes: FakeAdapter, **changes: Any) -> AbstractAsyncContextManager[Door]:
    return door(*(fakes or (whole(),)), **changes)


async def post(d: Door, body: Any, path: str = "/v1/messages", **headers: str) -> tuple[int, Any]:
    response = await d.send("POST", path, body, **headers)
    return response.status, await response.json()


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_official_client_gets_a_message() -> None:
    async with opened() as d:
        message = await d.anthropic.messages.create(model="chat", max_tokens=20, messages=HELLO, system="Be kind.")
        assert message.id.startswith("msg_")
        assert message.content == [TextBlock(type="text", text="Hello!")]
        assert (message.stop_reason, message.stop_sequence, message.model) == ("end_turn", None, "m")
        cost = message.usage
        assert (cost.input_tokens, cost.cache_read_input_tokens, cost.output_tokens) == (3, 6, 4)
        assert message._request_id is not None
        assert message._request_id.startswith("req_")
    (record,) = d.rig.log.records
    assert (record.status, record.tenant, record.operation) == (200, "acme", "chat")
    assert record.usage == Usage(9, 4, exact=True)


async def test_its_key_may_come_either_way() -> None:
    async with opened() as d:
        assert (await post(d, message_body()))[0] == 200
        assert (await post(d, message_body(), authorization="", x_api_key=d.rig.key.plaintext))[0] == 200
        sdk = anthropic.AsyncAnthropic(base_url=d.url, auth_token=d.rig.key.plaintext, http_client=uncertified())
        async with sdk:
            await sdk.messages.create(model="chat", max_tokens=20, messages=HELLO)
        with pytest.raises(anthropic.AuthenticationError) as refused:
            await d.anthropic.with_options(api_key="sk-ant-no").messages.create(
                model="chat", max_tokens=1, messages=HELLO
            )
        assert refused.value.type == "authentication_error"
        assert refused.value.error_code == "invalid_api_key"


async def test_the_official_client_calls_tools() -> None:
    made = [
        {
            "id": "call_of_its_own_server",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"in": "Oslo"}'},
        },
        {"id": "b", "type": "function", "function": {"name": "weather", "arguments": "not json"}},
    ]
    async with opened(whole(None, "tool_calls", tool_calls=made, reasoning_content="Hm.")) as d:
        message = await d.anthropic.messages.create(model="chat", max_tokens=20, messages=HELLO, tools=[TOOL])
        thought, first, second = message.content
        assert thought == ThinkingBlock(type="thinking", thinking="Hm.", signature=kept_signatures.UNSIGNED)
        assert first == ToolUseBlock(type="tool_use", id=made[0]["id"], name="weather", input={"in": "Oslo"})
        assert isinstance(second, ToolUseBlock)
        assert second.input == {"INVALID_JSON": "not json"}
        assert message.stop_reason == "tool_use"
    sent = d.fake.calls[0].request
    assert json.loads(bytes(sent.codec.fields(sent)["tools"]))[0]["name"] == "weather"


@pytest.mark.parametrize("chunks", [TALK, TALK[:-2]], ids=["whole", "without its own end"])
async def test_a_stream(chunks: tuple[bytes, ...]) -> None:
    async with opened(FakeAdapter(Script(chunks=chunks))) as d:
        async with d.anthropic.messages.stream(model="chat", max_tokens=20, messages=HELLO) as stream:
            events = [event.type async for event in stream]
            message = await stream.get_final_message()
        assert events[0] == "message_start"
        assert events[-1] == "message_stop"
        assert message.content[0].type == "text"
        assert message.content[0].text == "Hello!"
        assert message.stop_reason == "end_turn"
        assert chunks is not TALK or (message.usage.input_tokens, message.usage.output_tokens) == (3, 4)


async def test_streamed_thoughts_calls_and_text() -> None:
    """Two calls whose pieces the server mixes come one after the other."""
    chunks = (
        ROLE,
        chunk({"reasoning_content": "Let "}),
        chunk({"reasoning_content": "me."}),
        chunk({"content": "One moment."}),
        calls(call(0, "", "a", "weather")),
        calls(call(0, '{"in":')),
        calls(call(1, '{"in"', "b", "weather")),
        calls(call(0, '"Oslo"}'), call(1, ':"Rome"}')),
        calls(call(2, "{}", "c", "weather")),
        chunk({}, "tool_calls"),
        *LAST,
    )
    async with opened(FakeAdapter(Script(chunks=chunks))) as d:
        raw = await d.anthropic.messages.create(model="chat", max_tokens=20, messages=HELLO, tools=[TOOL], stream=True)
        order = [(event.type, getattr(event, "index", None)) async for event in raw]
        async with d.anthropic.messages.stream(model="chat", max_tokens=20, messages=HELLO, tools=[TOOL]) as stream:
            message = await stream.get_final_message()
    blocks = [index for kind, index in order if kind in ("content_block_start", "content_block_stop")]
    assert blocks == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use", "tool_use"]
    inputs = [block.input for block in message.content if isinstance(block, ToolUseBlock)]
    assert inputs == [{"in": "Oslo"}, {"in": "Rome"}, {}]
    assert message.stop_reason == "tool_use"


async def test_the_stop_sequence_is_returned_if_the_server_reports_it() -> None:
    last = chunk({}, "stop", more={"stop_reason": "END"})
    async with opened(FakeAdapter(Script(chunks=(ROLE, chunk({"content": "a"}), last, *LAST)))) as d:
        for stops, reason in ((["END"], "stop_sequence"), (["other"], "end_turn")):
            kwargs: Any = {"model": "chat", "max_tokens": 20, "messages": HELLO, "stop_sequences": stops}
            async with d.anthropic.messages.stream(**kwargs) as stream:
                message = await stream.get_final_message()
            assert message.stop_reason == reason
            assert message.stop_sequence == ("END" if reason == "stop_sequence" else None)


async def test_the_bytes_of_a_message_are_forwarded_unchanged() -> None:
    body = b'{"id":"msg_x", "type":"message", "odd": [1.50]}'
    events = (b'event: message_start\ndata: {"type":"message_start"}\n\n', b"event: odd\ndata: {}\n\n")
    fakes = [FakeAdapter(Script(chunks=(body,), form=ANTHROPIC), Script(chunks=events, form=ANTHROPIC))]
    async with opened(*fakes) as d:
        for stream, expected in ((False, body), (True, b"".join(events))):
            assert await (await d.send("POST", "/v1/messages", message_body(stream=stream))).read() == expected


async def test_models_are_listed_in_the_form_of_each_client() -> None:
    async with opened() as d:
        page = await d.anthropic.models.list(limit=1)
        assert [(model.id, model.type) for model in page.data] == [("chat", "model")]
        assert not page.has_next_page()
        assert (await d.anthropic.models.retrieve("chat")).display_name == "chat"
        with pytest.raises(anthropic.NotFoundError):
            await d.anthropic.models.retrieve("none")
        assert (await (await d.send("GET", "/v1/models")).json())["object"] == "list"
    assert {record.operation for record in d.rig.log.records} == {"models"}


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "status", "type_", "kind"),
    [
        (CallerError("no"), 400, "invalid_request_error", anthropic.BadRequestError),
        (ContextTooLong("9000 tokens"), 400, "invalid_request_error", anthropic.BadRequestError),
        (CapacityError("full", retry_after=7), 529, "overloaded_error", anthropic.OverloadedError),
        (BackendError("broken"), 502, "api_error", anthropic.InternalServerError),
        (TransportError("gone"), 502, "api_error", anthropic.InternalServerError),
        (DeadlineError("late"), 504, "timeout_error", anthropic.DeadlineExceededError),
    ],
)
async def test_failures_have_anthropic_s_shape(
    fault: InferenceError, status: int, type_: str, kind: type[anthropic.APIStatusError]
) -> None:
    async with opened(FakeAdapter(Script(fault=fault))) as d:
        with pytest.raises(kind) as failed:
            await d.anthropic.messages.create(model="chat", max_tokens=20, messages=HELLO)
        error = failed.value
        assert (error.status_code, error.type, error.error_code) == (status, type_, fault.code)
        assert isinstance(error.body, dict)
        assert error.body["type"] == "error"
        assert error.body["request_id"] == error.request_id
        assert ("prompt is too long" in (error.api_message or "")) == isinstance(fault, ContextTooLong)
        assert error.response.headers.get("retry-after") == ("7" if status == 529 else None)
    assert [record.status for record in d.rig.log.records] == [status]


async def test_a_model_that_is_not_there() -> None:
    async with opened() as d:
        with pytest.raises(anthropic.NotFoundError) as failed:
            await d.anthropic.messages.create(model="none", max_tokens=20, messages=HELLO)
        assert failed.value.type == "not_found_error"


async def test_a_message_s_stream_that_breaks_ends_with_an_error_event() -> None:
    script = Script(chunks=TALK, fault=TransportError("The upstream broke."), fault_after=2)
    async with opened(FakeAdapter(script)) as d:
        received = list[str]()
        with pytest.raises(anthropic.APIStatusError, match="The upstream broke") as failed:
            await read(
                await d.anthropic.messages.create(model="chat", max_tokens=9, messages=HELLO, stream=True), received
            )
        assert received == ["message_start", "content_block_start", "content_block_delta"]
        assert failed.value.type == "api_error"


async def test_an_unreadable_chunk_ends_a_stream_with_an_error() -> None:
    for garbage in (b"data: {\n\n", b"data: [1]\n\n"):
        fake = FakeAdapter(Script(chunks=(ROLE, garbage, *TALK)))
        async with opened(fake) as d:
            stream = await d.anthropic.messages.create(model="chat", max_tokens=9, messages=HELLO, stream=True)
            with pytest.raises(anthropic.APIStatusError, match="cannot be decoded"):
                await read(stream, [])
        assert fake.calls[0].end == "cancelled"
        assert [type(record.error) for record in d.rig.log.records] == [BackendError]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", "JSON"),
        (b"[]", "JSON"),
        (b'{"model":"chat","max_tokens":1}', "messages"),
        (b'{"model":"chat","messages":[],"max_tokens":1}', "messages"),
        (b'{"model":"chat","messages":[{"role":"user","content":"x"}]}', "max_tokens"),
        (b'{"messages":[{"role":"user","content":"x"}],"max_tokens":1}', "model"),
        (b'{"model":"chat","messages":[{"role":"user","content":"x"}],"max_tokens":-1}', "max_tokens"),
        (b'{"model":"chat","messages":[{"role":"user","content":"x"}],"max_tokens":1,"stream":"yes"}', "stream"),
        (b'{"model":"chat","messages":[{"role":"user","content":"x"}],"max_tokens":1,"metadata":3}', "metadata"),
        (b'{"model":"chat","messages":' + b"[" * 5000, "nested"),
    ],
)
async def test_an_invalid_body_is_refused_with_its_field(body: bytes, param: str) -> None:
    async with opened() as d:
        status, error = await post(d, body)
        assert status == 400
        assert error["type"] == "error"
        assert error["error"]["type"] == "invalid_request_error"
        assert param in error["error"]["message"]


async def test_other_mistakes() -> None:
    async with opened() as d:
        for path in ("/v1/messages/batches", "/v1/messagesx"):
            status, error = await post(d, message_body(), path=path)
            assert (status, error["error"]["type"]) == (404, "not_found_error")
        assert (await post(d, message_body(), anthropic_beta="a\tb c"))[0] == 400
        assert (await post(d, message_body(), content_type="text/plain"))[0] == 415
        status, error = await post(d, message_body(messages=[{"role": "user", "content": "x" * 20_000}]))
        assert (status, error["error"]["type"]) == (413, "request_too_large")
        assert (await d.send("GET", "/v1/messages")).status == 405


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_limits_are_reported_and_enforced() -> None:
    async with opened(tenant={"limits": {"requests": "1/min", "tokens": "5000/min"}}) as d:
        response = await d.anthropic.messages.with_raw_response.create(model="chat", max_tokens=20, messages=HELLO)
        headers = response.headers
        assert headers["request-id"] == headers["x-request-id"]
        assert headers["anthropic-ratelimit-requests-limit"] == "1"
        assert headers["anthropic-ratelimit-requests-remaining"] == "0"
        assert headers["anthropic-ratelimit-requests-reset"].endswith("Z")
        assert int(headers["anthropic-ratelimit-tokens-remaining"]) <= 5000
        with pytest.raises(anthropic.RateLimitError) as failed:
            await d.anthropic.messages.create(model="chat", max_tokens=20, messages=HELLO)
        assert failed.value.type == "rate_limit_error"
        assert int(failed.value.response.headers["retry-after"]) > 0
        assert failed.value.response.headers["anthropic-ratelimit-requests-remaining"] == "0"


# ── counting ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_tokens_are_counted_by_the_server() -> None:
    fake = FakeAdapter(Script(chunks=(b'{"input_tokens":42}',), usage=Usage(exact=True)))
    async with opened(fake, tenant={"limits": {"tokens": "1000/min"}}) as d:
        counted = await d.anthropic.messages.with_raw_response.count_tokens(model="chat", messages=HELLO, tools=[TOOL])
        assert (await counted.parse()).input_tokens == 42
        assert "x-headrace-estimate" not in counted.headers
        assert d.rig.left("tokens") == pytest.approx(1000)
    assert isinstance(fake.calls[0].request, TokenCount)
    assert [record.usage for record in d.rig.log.records] == [Usage(exact=True)]


async def test_an_estimated_count_is_marked_as_an_estimate() -> None:
    async with opened(FakeAdapter(Script(fault=Unsupported("no")))) as d:
        image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 4000}}
        content: Any = [{"type": "text", "text": "x" * 400}, image]
        counted = await d.anthropic.messages.with_raw_response.count_tokens(
            model="chat", messages=[{"role": "user", "content": content}]
        )
        assert 1700 <= (await counted.parse()).input_tokens <= 1710
        assert counted.headers["x-headrace-estimate"] == "true"
    assert [record.status for record in d.rig.log.records] == [200]


# ── what routes do ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["text", "tokens"])
async def test_a_message_survives_the_engine_that_began_it(mode: str) -> None:
    tokens = ["Ri", "vers", " run", " to", " the", " sea", "."]
    endpoints = [f"http://127.0.0.1:{9 + i}" for i in range(2)]
    pool = {"name": "main", "endpoints": endpoints, "breaker": {"failures": 1000}, "resume": mode}
    route = {"to": "main", "retry": {"attempts": 2, "budget": "100%"}}
    models = [{"name": "chat", "routes": [route]}]
    async with opened(*talkers(2, tokens, 3), pools=[pool], models=models) as d:
        async with d.anthropic.messages.stream(
            model="chat", max_tokens=50, messages=HELLO, system="Be kind."
        ) as stream:
            message = await stream.get_final_message()
        assert message.content[0].type == "text"
        assert message.content[0].text == "".join(tokens)
        assert (message.usage.input_tokens, message.usage.output_tokens) == (PROMPT, len(tokens))
    assert [record.trace.events for record in d.rig.log.records] == [(("resume", "main"),)]


async def test_a_repeated_message_is_answered_from_the_cache() -> None:
    models = [{"name": "chat", "routes": [{"to": "main", "cache": {}, "retry": {"attempts": 1}}]}]
    fake = FakeAdapter(Script(chunks=(completion(),)), Script(chunks=TALK))
    async with opened(fake, models=models) as d:
        fields: Any = {"model": "chat", "max_tokens": 20, "messages": HELLO, "extra_body": {"temperature": 0}}
        for user in ("a", "b"):
            message = await d.anthropic.messages.create(**fields, metadata={"user_id": user})
            assert message.content == [TextBlock(type="text", text="Hello!")]
        for _ in range(2):
            async with d.anthropic.messages.stream(**fields) as stream:
                assert "".join([text async for text in stream.text_stream]) == "Hello!"
    assert len(fake.calls) == 2
    assert [line.cache for line in d.rig.log.lines] == ["miss", "hit", "miss", "hit"]


async def test_a_route_rewrites_by_openai_s_names() -> None:
    rewrite = {"caps": {"max_tokens": 7}, "force": {"temperature": 0, "seed": 1}, "drop": ["stop"]}
    models = [{"name": "chat", "routes": [{"to": "main", "rewrite": rewrite}]}]
    async with opened(whole(), models=models) as d:
        status, _ = await post(d, message_body(stop_sequences=["x"], metadata={"user_id": "u"}))
        assert d.rig.log.records[-1].user == "u"
        assert status == 200
    (call,) = d.fake.calls
    assert isinstance(call.request, MessagesRequest)
    assert {name: bytes(raw) for name, raw in call.request.payload.added.items()} == {"seed": b"1"}
    sent = {name: json.loads(bytes(raw)) for name, raw in call.request.fields.items()}
    assert (sent["max_tokens"], sent["temperature"], sent["seed"], sent["user"]) == (7, 0, 1, "u")
    assert "stop" not in sent
    assert call.request.max_tokens == 7


async def test_the_explanation_of_a_messages_route() -> None:
    routes = [{"name": "tools", "when": {"tools": True}, "to": "main"}, {"name": "others", "to": "main"}]
    models = [{"name": "chat", "routes": routes}]
    async with opened(whole(), models=models, tenant={"explain": True}) as d:
        for body, route in ((message_body(), 1), (message_body(tools=[TOOL]), 0)):
            response = await d.send("POST", "/v1/messages", body, x_headrace_explain="1")
            assert response.status == 200
            assert json.loads(response.headers["x-headrace-explain"])["route"] == route
