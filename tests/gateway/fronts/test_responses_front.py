"""`/v1/responses` over a real socket, with scripted servers of chats and of Responses behind it."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from adapters.errors import BackendError, CallerError, CapacityError, ContextTooLong, TransportError
from adapters.fake import FakeAdapter, Script
from adapters.requests import ChatRequest, ResponsesRequest
from adapters.types import Usage
from tests.support.chats import DONE, HELLO, chunk, completion
from tests.support.doors import Door, door
from tests.support.gateways import Rig, config
from tests.support.strict_chats import accepted

NATIVE: dict[str, Any] = {"pools": [
    {"name": "main", "endpoints": ["http://127.0.0.1:9"], "protocol": {"name": "openai", "responses": True}},
]}  # fmt: skip


async def send(d: Door, path: str = "/v1/responses", method: str = "POST", **body: Any) -> tuple[int, str]:
    response = await d.send(method, path, {"model": "chat", "input": "hi", **body} if method == "POST" else None)
    return response.status, await response.text()


def scripted(*chunks: bytes, **script: Any) -> FakeAdapter:
    return FakeAdapter(Script(chunks=chunks, **script))


def events_of(text: str) -> list[dict[str, Any]]:
    events = [json.loads(event.split("\ndata: ", 1)[1]) for event in text.split("\n\n") if event]
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    return events


async def test_the_official_client_gets_a_whole_answer() -> None:
    fake = scripted(completion())
    async with door(fake) as d:
        answer = await d.openai.responses.create(
            model="chat", input="hi", instructions="Be brief.", metadata={"a": "b"}
        )
        assert (answer.output_text, answer.status, answer.metadata) == ("Hello!", "completed", {"a": "b"})
        assert answer.usage is not None
        assert answer.usage.total_tokens == 13
        assert answer.id.startswith("resp_")
    (record,) = d.rig.log.records
    assert (record.operation, record.status, record.usage) == ("chat", 200, Usage(3, 2, exact=True))
    assert isinstance(fake.calls[0].request, ChatRequest)


async def test_the_official_client_gets_a_stream() -> None:
    async with door(scripted(*HELLO)) as d:
        async with d.openai.responses.stream(model="chat", input="hi") as stream:
            texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            final = await stream.get_final_response()
        assert ("".join(texts), final.output_text) == ("Hello!", "Hello!")
        assert final.usage is not None
        assert final.usage.output_tokens
    assert d.rig.log.records[0].error is None


class Sum(BaseModel):
    total: int


async def test_the_official_client_parses_answers_of_a_schema() -> None:
    fake = FakeAdapter(
        Script(chunks=(completion('{"total": 2}'),)),
        Script(chunks=(chunk({"content": '{"total":'}), chunk({"content": "3}"}), DONE)),
    )
    async with door(fake) as d:
        answer = await d.openai.responses.parse(model="chat", input="1+1?", text_format=Sum)
        assert answer.output_parsed == Sum(total=2)
        async with d.openai.responses.stream(model="chat", input="1+2?", text_format=Sum) as stream:
            assert (await stream.get_final_response()).output_parsed == Sum(total=3)
    assert fake.calls[0].request.uses_feature("json_schema")


async def test_a_break_in_a_stream_is_reported_and_nothing_is_added() -> None:
    script = {"fault": TransportError("The upstream broke."), "fault_after": 2}
    async with door(scripted(*HELLO, **script)) as d:
        status, text = await send(d, stream=True)
        *_, last = events_of(text)
        assert (status, last["type"]) == (200, "response.failed")
        assert last["response"]["error"]["message"] == "The upstream broke."
        assert last["response"]["output"][0]["content"][0]["text"] == "Hello!"
        assert "response.completed" not in text
    assert isinstance(d.rig.log.records[0].error, TransportError)


async def test_a_stream_that_cannot_be_read_ends_and_blames_the_upstream() -> None:
    async with door(scripted(HELLO[0], b"data: nonsense\n\n", *HELLO[1:])) as d:
        _, text = await send(d, stream=True)
        assert events_of(text)[-1]["type"] == "response.failed"
    assert isinstance(d.rig.log.records[0].error, BackendError)


@pytest.mark.parametrize(
    ("fault", "status", "code", "param"),
    [
        (ContextTooLong("Too long.", param="messages"), 400, "context_length_exceeded", "input"),
        (CallerError("No.", param="response_format"), 400, "invalid_request", "text.format"),
        (CapacityError("Full."), 503, "overloaded", None),
        (BackendError("Failed."), 502, "upstream_error", None),
    ],
)
async def test_refusals_name_the_fields_of_this_door(fault: Any, status: int, code: str, param: str | None) -> None:
    async with door(scripted(fault=fault)) as d:
        actual, text = await send(d)
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
async def test_nothing_is_stored(method: str, path: str, status: int, code: str) -> None:
    async with door(scripted()) as d:
        actual, text = await send(d, path, method)
        assert (actual, json.loads(text)["error"]["code"]) == (status, code)


async def test_impossible_requests_are_refused_before_any_upstream_call() -> None:
    fake = scripted()
    async with door(fake) as d:
        for body in ({"background": True}, {"previous_response_id": "resp_1"}, {"tool_choice": {"type": "web_search"}}):
            status, text = await send(d, **body)
            assert (status, json.loads(text)["error"]["code"]) == (400, "unsupported_parameter")
        assert not fake.calls


CODEX: dict[str, Any] = {
    "tools": [{"type": "web_search"}, {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}],
    "client_metadata": {"a": "b"}, "prompt_cache_key": "k", "store": True, "include": ["reasoning.encrypted_content"],
}  # fmt: skip


async def test_fields_for_servers_of_responses_are_reported_or_refused_by_a_strict_route() -> None:
    routes = [{"when": {"header": {"x-strict": "yes"}}, "to": "main", "strict": True}, {"to": "main"}]
    fake = scripted(completion())
    async with door(fake, models=[{"name": "chat", "routes": routes}]) as d:
        body = {"model": "chat", "input": "hi", **CODEX}
        response = await d.send("POST", "/v1/responses", body)
        assert response.status == 200
        ignored = response.headers["x-headrace-ignored"].split(", ")
        assert sorted(ignored) == ["client_metadata", "prompt_cache_key", "store", "web_search"]
        assert accepted(fake.calls[0].request)["tools"][0]["function"]["name"] == "n__f"  # type: ignore[arg-type]
        refused = await d.send("POST", "/v1/responses", body, x_strict="yes")
        assert refused.status == 400
        assert (await refused.json())["error"]["param"] in ignored


async def test_a_body_of_responses_at_the_path_of_chats_is_answered_as_a_chat() -> None:
    fake = scripted(completion())
    async with door(fake) as d:
        call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
        items = [
            {"role": "user", "content": "hi"},
            call,
            {"type": "function_call_output", "call_id": "1", "output": "4"},
        ]
        response = await d.send("POST", "/v1/chat/completions", {"model": "chat", "input": items, **CODEX})
        assert (await response.json())["choices"][0]["message"]["content"] == "Hello!"
        assert "web_search" in response.headers["x-headrace-ignored"]
        body = accepted(fake.calls[0].request)  # type: ignore[arg-type]
        assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool"]
        for wrong, param in (({}, "messages"), ({"messages": [], "input": "x"}, "messages"), ({"input": []}, "input")):
            refused = await d.send("POST", "/v1/chat/completions", {"model": "chat", **wrong})
            assert (refused.status, (await refused.json())["error"]["param"]) == (400, param)


# ── servers that know Responses ───────────────────────────────────────────────────────────────────────


async def test_servers_with_the_responses_api_receive_the_request_unchanged() -> None:
    body = b'{"id": "resp_9",  "object": "response", "output": [], "usage": {"input_tokens": 1, "output_tokens": 1}}'
    fake = scripted(body)
    async with door(fake, **NATIVE) as d:
        status, text = await send(d, tools=[{"type": "web_search"}], truncation="auto")
        assert (status, text.encode()) == (200, body)
        status, _ = await send(d, previous_response_id="resp_9")
        assert status == 400
        # A chat is still a chat.
        await send(d, "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}])
    first, second = [call.request for call in fake.calls]
    assert isinstance(first, ResponsesRequest)
    assert bytes(first.fields["tools"]) == b'[{"type": "web_search"}]'
    assert bytes(first.fields["store"]) == b"false"
    assert isinstance(second, ChatRequest)


async def test_their_streams_pass_and_a_break_is_the_next_event() -> None:
    events = [
        f'event: response.{kind}\ndata: {{"type":"response.{kind}","sequence_number":{number}}}\n\n'.encode()
        for number, kind in enumerate(("created", "in_progress", "output_text.delta", "completed"))
    ]
    fake = FakeAdapter(
        Script(chunks=tuple(events)),
        Script(chunks=(events[0] + events[1], events[2]), fault=TransportError("It broke."), fault_after=2),
    )
    async with door(fake, **NATIVE) as d:
        _, text = await send(d, stream=True)
        assert text.encode() == b"".join(events)
        _, text = await send(d, stream=True)
        *_, last = events_of(text)
        assert (last["type"], last["message"], last["sequence_number"]) == ("error", "It broke.", 3)


async def test_a_model_is_served_by_chats_if_one_pool_lacks_the_responses_api() -> None:
    pools = [*NATIVE["pools"], {"name": "other", "endpoints": ["http://127.0.0.1:9"]}]
    models = [{"name": "chat", "routes": [{"to": "main", "fallback": ["other"]}]}]
    fake = scripted(completion())
    rig = Rig(config(pools=pools, models=models), {"main": [fake], "other": [scripted()]})
    assert rig.core.snapshot.responses_models == frozenset()
