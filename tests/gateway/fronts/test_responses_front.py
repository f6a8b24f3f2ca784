"""`/v1/responses` over a real socket, with scripted servers of chats and of Responses behind it."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
import openai
import pytest
from pydantic import BaseModel

from adapters.errors import BackendError, CallerError, CapacityError, ContextTooLong, TransportError
from adapters.fake import FakeAdapter, Script
from adapters.requests import ChatRequest, ResponsesRequest
from adapters.types import Usage
from tests.support.gateways import Rig, config, listening


def completion(message: dict[str, Any], finish: str = "stop") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return json.dumps({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
HELLO = (chunk({"content": "Hel"}), chunk({"content": "lo!"}), chunk({}, "stop"), DONE)
NATIVE: dict[str, Any] = {"pools": [
    {"name": "main", "endpoints": ["http://127.0.0.1:9"], "protocol": {"name": "openai", "responses": True}},
]}  # fmt: skip
TOOLS: Any = [{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}]


class Door:
    """A listening front, and two clients: the official one and a plain one."""

    def __init__(self, rig: Rig, url: str, http: aiohttp.ClientSession) -> None:
        self.rig = rig
        self.url = url
        self.http = http
        self.sdk = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=rig.key.plaintext, max_retries=0)

    async def send(self, path: str = "/v1/responses", method: str = "POST", **body: Any) -> tuple[int, str]:
        headers = {"authorization": f"Bearer {self.rig.key.plaintext}", "content-type": "application/json"}
        data = json.dumps({"model": "chat", "input": "hi", **body}) if method == "POST" else None
        async with self.http.request(method, self.url + path, data=data, headers=headers) as response:
            return response.status, await response.text()


Opener = Callable[..., AbstractAsyncContextManager[Door]]


@pytest.fixture
def door() -> Opener:
    @asynccontextmanager
    async def open_door(*fakes: FakeAdapter, **changes: Any) -> AsyncIterator[Door]:
        rig = Rig(config(**changes), {"main": list(fakes)})
        async with listening(rig) as url, aiohttp.ClientSession() as http:
            made = Door(rig, url, http)
            yield made
            await made.sdk.close()

    return open_door


def scripted(*chunks: bytes, **script: Any) -> FakeAdapter:
    return FakeAdapter(Script(chunks=chunks, **script))


def events_of(text: str) -> list[dict[str, Any]]:
    events = [json.loads(event.split("\ndata: ", 1)[1]) for event in text.split("\n\n") if event]
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    return events


async def test_the_official_client_gets_a_whole_answer(door: Opener) -> None:
    fake = scripted(completion({"content": "Hello!"}))
    async with door(fake) as d:
        answer = await d.sdk.responses.create(model="chat", input="hi", instructions="Be brief.", metadata={"a": "b"})
        assert (answer.output_text, answer.status, answer.metadata) == ("Hello!", "completed", {"a": "b"})
        assert answer.usage is not None
        assert answer.usage.total_tokens == 5
        assert answer.id.startswith("resp_")
    (record,) = d.rig.log.records
    assert (record.operation, record.status, record.usage) == ("chat", 200, Usage(3, 2, exact=True))
    assert isinstance(fake.calls[0].request, ChatRequest)


async def test_the_official_client_gets_a_stream(door: Opener) -> None:
    async with door(scripted(*HELLO)) as d:
        async with d.sdk.responses.stream(model="chat", input="hi") as stream:
            texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            final = await stream.get_final_response()
        assert ("".join(texts), final.output_text) == ("Hello!", "Hello!")
        assert final.usage is not None
        assert final.usage.output_tokens
    assert d.rig.log.records[0].error is None


async def test_tools_go_round(door: Opener) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"x":1}'}}
    fake = FakeAdapter(
        Script(chunks=(completion({"content": None, "tool_calls": [call]}, "tool_calls"),)),
        Script(chunks=(completion({"content": "Two."}),)),
    )
    async with door(fake) as d:
        items: list[Any] = [{"role": "user", "content": "1+1?"}]
        first = await d.sdk.responses.create(model="chat", input=items, tools=TOOLS, store=False)
        (called,) = first.output
        assert called.type == "function_call"
        assert (called.name, called.arguments) == ("add", '{"x":1}')
        items += [*first.output, {"type": "function_call_output", "call_id": called.call_id, "output": "2"}]
        last = await d.sdk.responses.create(model="chat", input=items, tools=TOOLS)
        assert last.output_text == "Two."
    request = fake.calls[1].request
    assert isinstance(request, ChatRequest)
    assert json.loads(bytes(request.fields["messages"]))[1:] == [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
    ]


class Sum(BaseModel):
    total: int


async def test_the_official_client_parses_answers_of_a_schema(door: Opener) -> None:
    fake = FakeAdapter(
        Script(chunks=(completion({"content": '{"total": 2}'}),)),
        Script(chunks=(chunk({"content": '{"total":'}), chunk({"content": "3}"}), DONE)),
    )
    async with door(fake) as d:
        answer = await d.sdk.responses.parse(model="chat", input="1+1?", text_format=Sum)
        assert answer.output_parsed == Sum(total=2)
        async with d.sdk.responses.stream(model="chat", input="1+2?", text_format=Sum) as stream:
            assert (await stream.get_final_response()).output_parsed == Sum(total=3)
    request = fake.calls[0].request
    assert request.uses_feature("json_schema")


async def test_a_break_in_a_stream_is_reported_and_nothing_is_added(door: Opener) -> None:
    script = {"fault": TransportError("The upstream broke."), "fault_after": 2}
    async with door(scripted(*HELLO, **script)) as d:
        status, text = await d.send(stream=True)
        *_, last = events_of(text)
        assert (status, last["type"]) == (200, "response.failed")
        assert last["response"]["error"]["message"] == "The upstream broke."
        assert last["response"]["output"][0]["content"][0]["text"] == "Hello!"
        assert "response.completed" not in text
    error = d.rig.log.records[0].error
    assert error is not None
    assert error.kind == "transport"


async def test_a_stream_that_cannot_be_read_ends_and_blames_the_upstream(door: Opener) -> None:
    async with door(scripted(HELLO[0], b"data: nonsense\n\n", *HELLO[1:])) as d:
        _, text = await d.send(stream=True)
        assert events_of(text)[-1]["type"] == "response.failed"
    error = d.rig.log.records[0].error
    assert isinstance(error, BackendError)


async def test_a_client_that_leaves_stops_the_upstream(door: Opener) -> None:
    fake = scripted(*HELLO[:1] * 500, gap=0.01)
    async with door(fake) as d:
        stream = await d.sdk.responses.create(model="chat", input="hi", stream=True)
        await stream.__anext__()
        await stream.close()
        await d.rig.until_idle()
        assert fake.calls[0].end == "cancelled"
    assert d.rig.log.records[0].status == 499


@pytest.mark.parametrize(
    ("fault", "status", "code", "param"),
    [
        (ContextTooLong("Too long.", param="messages"), 400, "context_length_exceeded", "input"),
        (CallerError("No.", param="response_format"), 400, "invalid_request", "text.format"),
        (CapacityError("Full."), 503, "overloaded", None),
        (BackendError("Failed."), 502, "upstream_error", None),
    ],
)
async def test_refusals_name_the_fields_of_this_door(
    door: Opener, fault: Any, status: int, code: str, param: str | None
) -> None:
    async with door(scripted(fault=fault)) as d:
        actual, text = await d.send()
        error = json.loads(text)["error"]
        assert (actual, error["code"], error["param"]) == (status, code, param)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/responses", 405, "method_not_allowed"),
        ("GET", "/v1/responses/resp_1", 404, "response_not_found"),
        ("DELETE", "/v1/responses/resp_1", 404, "response_not_found"),
        ("POST", "/v1/responses/resp_1/cancel", 404, "response_not_found"),
        ("POST", "/v1/responsesX", 404, "unknown_url"),
    ],
)
async def test_nothing_is_stored(door: Opener, method: str, path: str, status: int, code: str) -> None:
    async with door(scripted()) as d:
        actual, text = await d.send(path, method)
        assert (actual, json.loads(text)["error"]["code"]) == (status, code)


async def test_impossible_requests_are_refused_before_any_upstream_call(door: Opener) -> None:
    fake = scripted()
    async with door(fake) as d:
        for body in ({"store": True}, {"previous_response_id": "resp_1"}, {"tools": [{"type": "web_search"}]}):
            status, text = await d.send(**body)
            assert (status, json.loads(text)["error"]["code"]) == (400, "unsupported_parameter")
        assert not fake.calls


# ── servers that know Responses ───────────────────────────────────────────────────────────────────────


async def test_servers_with_the_responses_api_receive_the_request_unchanged(door: Opener) -> None:
    body = b'{"id": "resp_9",  "object": "response", "output": [], "usage": {"input_tokens": 1, "output_tokens": 1}}'
    fake = scripted(body)
    async with door(fake, **NATIVE) as d:
        status, text = await d.send(tools=[{"type": "web_search"}], truncation="auto")
        assert (status, text.encode()) == (200, body)
        status, _ = await d.send(previous_response_id="resp_9")
        assert status == 400
        # A chat is still a chat.
        await d.send("/v1/chat/completions", messages=[{"role": "user", "content": "hi"}])
    first, second = [call.request for call in fake.calls]
    assert isinstance(first, ResponsesRequest)
    assert bytes(first.fields["tools"]) == b'[{"type": "web_search"}]'
    assert bytes(first.fields["store"]) == b"false"
    assert isinstance(second, ChatRequest)


async def test_their_streams_pass_and_a_break_is_the_next_event(door: Opener) -> None:
    events = [
        f'event: response.{kind}\ndata: {{"type":"response.{kind}","sequence_number":{number}}}\n\n'.encode()
        for number, kind in enumerate(("created", "in_progress", "output_text.delta", "completed"))
    ]
    fake = FakeAdapter(
        Script(chunks=tuple(events)),
        Script(chunks=(events[0] + events[1], events[2]), fault=TransportError("It broke."), fault_after=2),
    )
    async with door(fake, **NATIVE) as d:
        _, text = await d.send(stream=True)
        assert text.encode() == b"".join(events)
        _, text = await d.send(stream=True)
        *_, last = events_of(text)
        assert (last["type"], last["message"], last["sequence_number"]) == ("error", "It broke.", 3)


async def test_a_model_is_served_by_chats_if_one_pool_lacks_the_responses_api(door: Opener) -> None:
    pools = [*NATIVE["pools"], {"name": "other", "endpoints": ["http://127.0.0.1:9"]}]
    models = [{"name": "chat", "routes": [{"to": "main", "fallback": ["other"]}]}]
    fake = scripted(completion({"content": "Hello!"}))
    rig = Rig(config(pools=pools, models=models), {"main": [fake], "other": [scripted()]})
    assert rig.core.snapshot.responses_models == frozenset()
