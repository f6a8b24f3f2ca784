"""Fields of the doors of text: those that a route drops, threads, and the names of fields in errors."""

import json
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from adapters.errors import CallerError
from adapters.fake import FakeAdapter, Script
from adapters.http1.client import Client
from adapters.requests import ModelRequest
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.wire.anthropic.message_request import MessagesRequest
from adapters.wire.field_names import CHAT as CHAT_NAMES
from adapters.wire.field_names import MESSAGES as MESSAGE_NAMES
from adapters.wire.field_names import RESPONSES as RESPONSE_NAMES
from adapters.wire.field_names import FieldNames
from adapters.wire.openai import chat as openai_wire
from gateway.fronts import decoding
from tests.adapters.http1.scripted import answers, scripted
from tests.support.chats import completion
from tests.support.doors import CHATS, FOREIGN, HI, MESSAGES, RESPONSES, Before, Door, door
from tests.support.gateways import Rig, config
from tests.support.openai_answers import http

CHAT: dict[str, Any] = {"model": "chat", "messages": HI}
MESSAGE: dict[str, Any] = {**CHAT, "max_tokens": 9}
RESPONSE: dict[str, Any] = {"model": "chat", "input": "hi"}
BODIES = {CHATS: CHAT, RESPONSES: RESPONSE, MESSAGES: MESSAGE}


def opened(*chunks: bytes, **route: Any) -> AbstractAsyncContextManager[Door]:
    fake = FakeAdapter(*(Script(chunks=(body,)) for body in chunks))
    return door(fake, models=[{"name": "chat", "routes": [{"to": "main", **route}]}])


# ── a coding agent's fields ───────────────────────────────────────────────────────────────────────────

AGENT: dict[str, Any] = {
    **MESSAGE,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
    "metadata": {"user_id": "u" * 150},
    "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    "field_of_the_next_release": {"a": 1},
}


@pytest.mark.parametrize("strict", [False, True])
async def test_a_coding_agents_fields_are_reported_and_counted_or_refused_by_a_strict_route(
    strict: bool,
) -> None:
    async with scripted(answers(http(completion("a")))) as upstream:
        adapter = OpenAIAdapter(Client(upstream.url))
        async with door(Before(adapter), models=[{"name": "chat", "routes": [{"to": "main", "strict": strict}]}]) as d:
            answer = await d.send("POST", MESSAGES, AGENT)
            metrics = generate_latest(d.rig.metrics.registry).decode()
            if strict:
                assert answer.status == 400
                assert "`context_management` has no effect" in await answer.text()
            else:
                assert answer.status == 200, await answer.text()
                assert set(answer.headers["x-headrace-ignored"].split(", ")) == {
                    "cache_control", "context_management", "field_of_the_next_release", "thinking",
                    "web_search_20250305",
                }  # fmt: skip
                assert 'headrace_ignored_fields_total{field="context_management"} 1.0' in metrics
                assert 'headrace_ignored_fields_total{field="other"} 2.0' in metrics
        await adapter.aclose()


# ── Anthropic's threads ───────────────────────────────────────────────────────────────────────────────

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}


@pytest.mark.parametrize("strict", [False, True])
async def test_the_tool_runner_of_the_official_client_works_unchanged(strict: bool) -> None:
    @anthropic.beta_async_tool
    async def add(x: int) -> str:
        """Add one.

        Args:
            x: The number.
        """
        return str(x + 1)

    async with opened(completion(None, "tool_calls", tool_calls=[CALL]), completion("Two."), strict=strict) as d:
        runner = d.anthropic.beta.messages.tool_runner(
            model="chat", max_tokens=99, messages=[{"role": "user", "content": "1+1?"}], tools=[add]
        )
        last = await runner.until_done()
    assert last.content[0].type == "text"
    assert last.content[0].text == "Two."
    request = d.fake.calls[-1].request
    assert isinstance(request, MessagesRequest)
    roles = [message["role"] for message in json.loads(bytes(request.fields["messages"]))]
    assert roles == ["user", "assistant", "tool"]  # all of the conversation, since the gateway holds no thread


async def test_a_continued_thread_is_unsupported() -> None:
    async with opened(rewrite={"drop": ["thread"]}) as d:
        thread = {"type": "continue", "previous_message_id": "msg_1"}
        answer = await d.send("POST", MESSAGES, {**MESSAGE, "thread": thread})
        details = (await answer.json())["error"]["details"]
        assert (answer.status, details) == (404, {"error_code": "thread_not_found"})
    async with opened() as d:
        assert (await d.send("POST", MESSAGES, {**MESSAGE, "thread": {"type": "forget"}})).status == 400


# ── dropped fields ────────────────────────────────────────────────────────────────────────────────────

DROPPED: list[tuple[str, dict[str, Any], str]] = [
    (CHATS, {**CHAT, "max_tokens": "many"}, "max_tokens"),
    (CHATS, {**CHAT, "n": 0, "user": 7}, "n"),
    ("/v1/embeddings", {"model": "chat", "input": "a", "user": 7}, "user"),
    (RESPONSES, {**RESPONSE, "background": True}, "background"),
    (RESPONSES, {**RESPONSE, "conversation": 7}, "conversation"),
    (RESPONSES, {**RESPONSE, "moderation": {"model": "m"}}, "moderation"),
    (RESPONSES, {**RESPONSE, "max_output_tokens": 0}, "max_tokens"),
    (RESPONSES, {**RESPONSE, "reasoning": 7}, "reasoning_effort"),
    (MESSAGES, {**MESSAGE, "metadata": 7}, "user"),
    (MESSAGES, {**MESSAGE, "stop_sequences": 7}, "stop"),
]


@pytest.mark.parametrize(("path", "body", "dropped"), DROPPED)
async def test_a_dropped_field_is_removed_before_a_door_validates_it(
    path: str, body: dict[str, Any], dropped: str
) -> None:
    data = b'{"object":"list","data":[],"choices":[{"message":{"role":"assistant","content":"a"}}]}'
    for names, status in (({dropped, "user"}, 200), ({"seed"}, 400)):
        async with opened(data, rewrite={"drop": sorted(names)}) as d:
            answer = await d.send("POST", path, body)
            assert answer.status == status, await answer.text()


async def test_a_field_that_only_another_route_drops_is_refused() -> None:
    routes = [{"to": "main", "when": {"stream": True}, "rewrite": {"drop": ["n"]}}, {"to": "main"}]
    async with door(FakeAdapter(), models=[{"name": "chat", "routes": routes}]) as d:
        assert (await d.send("POST", CHATS, {**CHAT, "n": 0, "stream": True})).status == 200
        refused = await d.send("POST", CHATS, {**CHAT, "n": 0})
        assert (refused.status, (await refused.json())["error"]["param"]) == (400, "n")


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.lists(st.integers()),
)
FIELDS = st.sampled_from(["max_tokens", "n", "user", "max_completion_tokens", "stop", "metadata", "seed"])


@given(st.dictionaries(FIELDS, JUNK), st.sets(FIELDS, min_size=1))
async def test_no_value_of_a_dropped_field_is_refused(junk: dict[str, Any], dropped: set[str]) -> None:
    if {"max_tokens", "max_completion_tokens"} <= dropped:
        dropped.remove("max_completion_tokens")  # one field of two names
    rewrite = {"drop": sorted(dropped)}
    configuration = config(models=[{"name": "chat", "routes": [{"to": "main", "rewrite": rewrite}]}])
    snapshot = Rig(configuration, {"main": [FakeAdapter()]}).core.snapshot
    read = openai_wire.decode_chat
    model = snapshot.catalogue.find("chat")
    assert model is not None
    forwarded = {name: value for name, value in junk.items() if name not in model.rules.dropped}
    body = json.dumps({**CHAT, **junk}).encode()
    try:
        await decoding.decode(snapshot, read, body)
        refused = False
    except CallerError:
        refused = True
    assert refused == _refused(read, {**CHAT, **forwarded})


def _refused(read: Callable[[bytes], ModelRequest], body: dict[str, Any]) -> bool:
    try:
        read(json.dumps(body).encode())
    except CallerError:
        return True
    return False


# ── names of fields in errors ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("message", [
    "`messages[1].content[0].image_url` is not supported: this model takes text only.",
    "'max_completion_tokens' must be at most 9.",
    "Invalid value: 'image_url'. Supported values are: 'text'.",
    "At most 0 image_url(s) may be provided in one prompt.",
    "messages[2] has tool_calls without tool_call_id",
])  # fmt: skip
async def test_a_foreign_servers_refusal_is_translated_anew(message: str) -> None:
    for path in (RESPONSES, MESSAGES):
        async with door(FakeAdapter(Script(fault=CallerError(message, param="messages[1].content")))) as d:
            answer = await d.send("POST", path, BODIES[path])
        error = (await answer.json())["error"]
        assert answer.status == 400
        assert not set(re.findall(r"[a-z_]+", error["message"])) & FOREIGN[path]
        assert error.get("param") in (None, "input")


@pytest.mark.parametrize("words", [MESSAGE_NAMES, RESPONSE_NAMES, CHAT_NAMES])
def test_each_word_occurs_once(words: FieldNames) -> None:
    error = CallerError("`messages[0].tool_calls` and `stop_sequences` and `prompt`", param="prompt")
    first = words.of(error).message, error.param
    assert (words.of(error).message, error.param) == first
