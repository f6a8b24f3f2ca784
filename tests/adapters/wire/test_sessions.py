"""Sessions whose turns are answered by different servers, and clients that are newer than the gateway.

Both go through the real translators. Strict servers must refuse nothing.
"""

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.ignored_fields import IgnoredFields
from adapters.requests import ChatRequest
from adapters.types import Usage
from adapters.wire import sse
from adapters.wire.anthropic import requests as messages
from adapters.wire.anthropic.answers import MessageEvents, completion_of, message_of, read_message
from adapters.wire.anthropic.chat_to_message import message_fields
from adapters.wire.anthropic.chat_turns import without_own_thoughts
from adapters.wire.anthropic.message_request import MessagesRequest
from adapters.wire.gemini.answers import read
from adapters.wire.gemini.chat_to_content import content_fields
from adapters.wire.gemini.content_to_chat import completion_of as completion_of_contents
from adapters.wire.openai import chat
from adapters.wire.openai.dialects import AUTO
from adapters.wire.openai.providers import DIALECTS
from adapters.wire.openai.thinking import thinking_of_message
from adapters.wire.responses import requests as responses
from adapters.wire.responses.answers import Shell
from adapters.wire.responses.events import ResponseEvents
from adapters.wire.responses.events import whole as whole_response
from tests.support.door_events import message_of_events
from tests.support.strict_servers import GOOGLE, SERVERS, chat_answer, google_answer, message_answer

Object = dict[str, Any]

# Captured from a coding agent, shortened: what it sends by default and always.
MESSAGES: Object = {
    "model": "m",
    "max_tokens": 32000,
    "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
    "metadata": {"user_id": json.dumps({"device_id": "d" * 64, "session_id": "s" * 36, "account_uuid": "a" * 20})},
    "tools": [
        {
            "name": "weather",
            "description": "d",
            "input_schema": {"type": "object"},
            "cache_control": {"type": "ephemeral"},
        },
        {"name": "mcp__server__" + "n" * 90, "input_schema": {"type": "object", "properties": {}}},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    ],
    "tool_choice": {"type": "auto"},
    "stream": False,
}
CHAT: Object = {
    "model": "m",
    "tools": [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("weather", "a_b")],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "user": "u" * 64,
}
RESPONSES: Object = {
    "model": "m",
    "instructions": "s",
    "tools": [
        {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False},
        {"type": "namespace", "name": "mcp__server", "tools": [
            {"type": "function", "name": "n" * 90, "parameters": {"type": "object"}},
        ]},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "d"}},
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": "auto", "parallel_tool_calls": True, "store": False, "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k", "client_metadata": {"a": "b"}, "reasoning": {"summary": "auto"},
}  # fmt: skip


def sent(request: ChatRequest, server: str, ignored: IgnoredFields | None = None) -> Object:
    """The body that a server of this kind receives."""
    name, ignored = SERVERS[server].dialect, ignored or IgnoredFields()
    if server == "google":
        request.payload.report(ignored)
        wish = request.payload.thinking if isinstance(request, MessagesRequest) else {}
        contents = content_fields({**wish, **request.fields}, GOOGLE, ignored, of_vertex=False).fields
        return dict(json.loads(msgspec.json.encode(contents)))
    if name is None:
        if isinstance(request, MessagesRequest):
            native = without_own_thoughts(request.payload.native)
            return {name: json.loads(bytes(raw)) for name, raw in native.items()}
        body: Object = json.loads(msgspec.json.encode(message_fields(request, None, 4096, ignored)))
        return body
    request.payload.report(ignored)
    dialect, added = DIALECTS.get(name, AUTO), {}
    if isinstance(request, MessagesRequest):
        added = thinking_of_message(request.payload.native, request.fields, dialect.thinking)
    body = json.loads(chat.upstream_body(request, None, dialect, "", added))
    return dict(body)


# ── one session, many servers ─────────────────────────────────────────────────────────────────────────────


def events_of(completion: bytes) -> bytes:
    """A completion as the stream of a server that writes each part in one piece."""
    fields = json.loads(completion)
    (choice,) = fields["choices"]
    message, end = choice["message"], choice["finish_reason"]
    calls = [{"index": i, **call} for i, call in enumerate(message.get("tool_calls") or ())]
    parts: list[Object] = [{name: text} for name, text in message.items() if name != "tool_calls"]
    parts.sort(key=lambda part: "content" in part)  # thoughts come first
    parts += [{"tool_calls": [call]} for call in calls]
    choices: list[Object] = [{"index": 0, "delta": part, "finish_reason": None} for part in parts]
    choices.append({"index": 0, "delta": {}, "finish_reason": end})
    head = {"id": fields["id"], "object": "chat.completion.chunk", "model": fields["model"]}
    written = [json.dumps({**head, "choices": [each]}) for each in choices]
    return "".join(f"data: {each}\n\n" for each in [*written, "[DONE]"]).encode()


def plans(servers: set[str]) -> st.SearchStrategy[list[tuple[str, int]]]:
    """The server and the calls of each turn. The two servers of Google's do not know each other's signatures."""
    groups = [sorted(servers - {"gemini"}), sorted(servers - {"google"})]
    return st.sampled_from(groups).flatmap(
        lambda group: st.lists(st.tuples(st.sampled_from(group), st.integers(0, 2)), min_size=2, max_size=7)
    )


def chatted(server: str, received: Object, calls: int, nth: int) -> bytes:
    """The completion that a server's answer becomes. It calls its first tools."""
    if server == "google":
        declared = received["tools"][0]["functionDeclarations"]
        answer = google_answer([each["name"] for each in declared[:calls]], nth)
        return completion_of_contents(read(json.dumps(answer).encode()), Usage(), 0, "m")
    names = [(tool.get("function") or tool)["name"] for tool in received["tools"][:calls]]
    if server == "anthropic":
        return completion_of(read_message(json.dumps(message_answer(names, nth)).encode()), 0)
    return json.dumps(chat_answer(server, names, nth)).encode()


@settings(max_examples=150, deadline=None)
@given(plans(set(SERVERS)), st.booleans())
def test_a_session_of_messages_is_never_refused(plan: list[tuple[str, int]], stream: bool) -> None:
    history: list[Object] = [{"role": "user", "content": "q"}]
    for nth, (server, calls) in enumerate(plan):
        body = json.dumps({**MESSAGES, "messages": history}).encode()
        request = messages.decode_message(body)
        received = sent(request, server)
        assert list(SERVERS[server].faults(received)) == []
        own = [tool["name"] for tool in MESSAGES["tools"][:calls]]
        if server == "anthropic":
            answer = message_answer(own, nth)
        else:
            completion, names = chatted(server, received, calls, nth), messages.names(request)
            answer = json.loads(message_of(completion, Usage(), [], "m", names))
            if stream:
                answer = message_of_events(MessageEvents([], "m", names).take(events_of(completion), Usage()))
        assert [block["name"] for block in answer["content"] if block["type"] == "tool_use"] == own
        history.append({"role": "assistant", "content": answer["content"]})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "r"}
            for block in answer["content"]
            if block["type"] == "tool_use"
        ]
        history.append({"role": "user", "content": results or f"and {nth}?"})


@settings(max_examples=150, deadline=None)
@given(plans(SERVERS.keys() - {"deepseek"}))
def test_a_session_of_chats_is_never_refused(plan: list[tuple[str, int]]) -> None:
    """Only servers of Messages and servers with a dialect of their own: others receive a chat unchanged."""
    history: list[Object] = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    for nth, (server, calls) in enumerate(plan):
        body = json.dumps({**CHAT, "messages": history}).encode()
        received = sent(chat.decode_chat(body), server)
        assert list(SERVERS[server].faults(received)) == []
        turn = json.loads(chatted(server, received, calls, nth))["choices"][0]["message"]
        history.append(turn)
        called = [{"role": "tool", "tool_call_id": call["id"], "content": "r"} for call in turn.get("tool_calls", ())]
        history += called or [{"role": "user", "content": f"and {nth}?"}]


@settings(max_examples=150, deadline=None)
@given(plans(set(SERVERS)), st.booleans())
def test_a_session_of_responses_is_never_refused(plan: list[tuple[str, int]], stream: bool) -> None:
    history: list[Object] = [{"role": "developer", "content": "d"}, {"role": "user", "content": "q"}]
    for nth, (server, calls) in enumerate(plan):
        request, body, given_ = responses.decode(json.dumps({**RESPONSES, "input": history}).encode())
        received = sent(request, server)
        assert list(SERVERS[server].faults(received)) == []
        answer = chatted(server, received, calls, nth)
        output = json.loads(whole_response(answer, Shell(body, given_), Usage()))["output"]
        if stream:
            events = ResponseEvents(Shell(body, given_))
            written = events.take(events_of(answer))
            *_, last, _ = (written + events.end(Usage())).split(b"\n\n")
            whole, output = output, json.loads(sse.data_of(last))["response"]["output"]
            assert [item["type"] for item in output] == [item["type"] for item in whole]
        called = [item["call_id"] for item in output if item["type"] == "function_call"]
        history += output
        history += [{"type": "function_call_output", "call_id": id_, "output": "r"} for id_ in called]
        if not called:
            history += [{"type": "web_search_call", "id": "w"}, {"role": "user", "content": f"and {nth}?"}]


# ── clients that are newer ────────────────────────────────────────────────────────────────────────────────

NEW = [f"new_field_{i}" for i in range(50)]
invented = st.dictionaries(st.sampled_from(NEW), st.sampled_from([1, "a", [{"b": 1.5}], {"type": "x"}]), max_size=3)
HISTORY: list[Object] = [
    {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "image", "source": {"type": "url", "url": "https://x"}}]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "t", "name": "weather", "input": {"x": 1}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "r"}]},
    ]},
]  # fmt: skip
CHATTED: list[Object] = [
    {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "image_url", "image_url": {"url": "https://x"}}]},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "t", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
    ]},
    {"role": "tool", "tool_call_id": "t", "content": [{"type": "text", "text": "r"}]},
]  # fmt: skip
SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}
_FREE = ("input", "input_schema", "parameters", "schema", "metadata")
"""Objects of the client's own: each field of theirs means something."""


def newer(value: Any, data: st.DataObject) -> Any:
    """The value with invented fields in each of its objects."""
    if isinstance(value, list):
        return [newer(entry, data) for entry in value]
    if not isinstance(value, dict):
        return value
    return {name: inner if name in _FREE else newer(inner, data) for name, inner in value.items()} | data.draw(invented)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(["openai", "vllm", "gemini", "google"]))
def test_invented_fields_of_messages_change_nothing(data: st.DataObject, server: str) -> None:
    plain = {**MESSAGES, "messages": HISTORY, "output_config": {"effort": "low", "format": SCHEMA}}
    _changes_nothing(messages.decode_message, plain, newer(plain, data), server)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_invented_fields_of_chats_change_nothing(data: st.DataObject) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    plain = {**CHAT, "messages": CHATTED, "response_format": form}
    _changes_nothing(chat.decode_chat, plain, newer(plain, data), "anthropic")


def _changes_nothing(decode: Any, plain: Object, extended: Object, server: str) -> None:
    ignored, reported = IgnoredFields(), IgnoredFields()
    assert sent(decode(json.dumps(extended).encode()), server, reported) == sent(
        decode(json.dumps(plain).encode()), server, ignored
    )
    added = {name for name in NEW if json.dumps(name) in json.dumps(extended)}
    if len(reported.ignored) < 16:
        assert {name for name in reported.ignored if name in NEW} >= added & set(extended)
