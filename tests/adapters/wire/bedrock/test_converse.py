"""Any chat becomes a request that Bedrock accepts and that has all its parts; any answer comes back whole."""

import json
import time
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.errors import BackendError, CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.types import Usage
from adapters.wire import sse
from adapters.wire.anthropic import blocks
from adapters.wire.anthropic.chat_to_message import message_fields
from adapters.wire.anthropic.stream_to_chat import ChatChunks, MessageEvent, MessageStart
from adapters.wire.bedrock.content import ConverseBlocks
from adapters.wire.bedrock.converse_events import MOST_COLLECTED, ConverseEvents, MessageWriter
from adapters.wire.bedrock.converse_requests import decode
from adapters.wire.bedrock.converse_to_message import encoded, message_of, usage_of
from adapters.wire.bedrock.event_stream import FrameSplitter
from adapters.wire.bedrock.message_to_converse import ConverseOptions, _ordered, converse_fields
from adapters.wire.bedrock.plain_chats import plain_fields
from adapters.wire.field_names import CHAT
from adapters.wire.openai.chat import decode_chat
from tests.support.pace import slowness
from tests.support.providers.bedrock import CLAUDE, NOVA, events, frame
from tests.support.providers.bedrock_shapes import faults, mistakes, signature

Object = dict[str, Any]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12).filter(str.strip)
NAMES = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=3).map(partial(json.dumps, ensure_ascii=False))
DATA = "data:image/png;base64,iVBORw0KGgo="
PARTS = st.lists(
    TEXTS.map(lambda text: {"type": "text", "text": text})
    | st.just({"type": "image_url", "image_url": {"url": DATA}})
    | TEXTS.map(lambda name: {"type": "file", "file": {"filename": name, "file_data": "data:text/csv;base64,AAAA"}}),
    min_size=1,
    max_size=3,
)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[Object], list[str]]:
    """Messages of a chat whose turns alternate, and the names of tools."""
    tools = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    messages: list[Object] = [{"role": "system", "content": draw(TEXTS)}] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(TEXTS | PARTS)})
        ids = draw(st.lists(NAMES, max_size=3, unique=True))
        functions = [{"name": draw(st.sampled_from(tools)), "arguments": draw(ARGUMENTS)} for _ in ids]
        calls = [
            {"id": f"{turn}{id_}"[:64], "type": "function", "function": function}
            for id_, function in zip(ids, functions, strict=True)
        ]
        answer: Object = {"role": "assistant", "content": draw(TEXTS)}
        if draw(st.booleans()):
            thought = draw(TEXTS)
            answer["thinking_blocks"] = [{"type": "thinking", "thinking": thought, "signature": signature(thought)}]
        messages.append({**answer, "tool_calls": calls} if calls else answer)
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": draw(TEXTS)} for call in calls]
    messages.append({"role": "user", "content": draw(TEXTS)})
    return messages, tools


def translated(model: str = CLAUDE, **fields: Any) -> tuple[Object, IgnoredFields]:
    request = decode_chat(json.dumps({"model": "m", **fields}).encode())
    ignored = IgnoredFields()
    message = msgspec.json.decode(
        msgspec.json.encode(message_fields(request, None, None, ignored)), type=dict[str, msgspec.Raw]
    )
    family: Any = "anthropic" if model == CLAUDE else "nova"
    body = converse_fields(message, ConverseOptions(family), ignored, chat=request.fields)
    return body, ignored


def plain(arguments: str) -> str:
    return msgspec.json.format(arguments.encode(), indent=-1).decode()


def of_chat(messages: list[Object]) -> list[Any]:
    """The parts of a conversation, in order."""
    out = list[Any]()
    for message in messages:
        role = {"tool": "user"}.get(message["role"], message["role"])
        for thought in message.get("thinking_blocks", ()):
            out.append((role, "thought", thought["thinking"], thought["signature"]))
        if message["role"] == "tool":
            out.append((role, "result", message["tool_call_id"], message["content"]))
            continue
        content = message["content"]
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            out.append((role, part["type"], part.get("text")))
        for call in message.get("tool_calls", ()):
            out.append((role, "call", call["id"], call["function"]["name"], plain(call["function"]["arguments"])))
    return out


def of_converse(body: Object) -> list[Any]:
    """The same of a request for Converse, whose arguments have the client's bytes."""
    out: list[tuple[Any, ...]] = [("system", "text", block["text"]) for block in body.get("system", ())]
    for message in body["messages"]:
        role = message["role"]
        for block in message["content"]:
            match block:
                case {"text": "."}:
                    continue  # Bedrock demands a text beside a document
                case {"text": text}:
                    out.append((role, "text", text))
                case {"image": _}:
                    out.append((role, "image_url", None))
                case {"document": _}:
                    out.append((role, "file", None))
                case {"toolUse": call}:
                    given = msgspec.json.format(msgspec.json.encode(call["input"]), indent=-1).decode()
                    out.append((role, "call", call["toolUseId"], call["name"], given))
                case {"toolResult": result}:
                    out.append((role, "result", result["toolUseId"], result["content"][0]["text"]))
                case {"reasoningContent": {"reasoningText": thought}}:
                    out.append((role, "thought", thought["text"], thought["signature"]))
    return out


@given(conversations(), st.sampled_from([CLAUDE, NOVA]))
def test_any_chat_has_its_roles_order_ids_and_arguments(sample: tuple[list[Object], list[str]], model: str) -> None:
    messages, names = sample
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]
    body, _ = translated(model, messages=messages, tools=tools)
    sent = json.loads(msgspec.json.encode(body))
    assert [*mistakes("Converse", sent), *faults(sent, model)] == []
    expected = [part for part in of_chat(messages) if part[2:] != (".",)]
    assert of_converse(body) == expected


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(-1, 3),
        "top_p": st.floats(-1, 2),
        "max_tokens": st.integers(-1, 9),
        "stop": TEXTS | st.lists(TEXTS, max_size=2),
        "n": st.integers(1, 2),
        "seed": st.integers(0, 9),
        "logit_bias": st.dictionaries(st.just("1"), st.integers(-1, 1), max_size=1),
        "user": TEXTS,
        "service_tier": st.sampled_from(["auto", "default", "flex", "priority"]),
        "reasoning_effort": st.sampled_from(["none", "minimal", "low", "medium", "high", "xhigh"]),
        "tool_choice": st.sampled_from(["auto", "none", "required"]),
        "parallel_tool_calls": st.booleans(),
        "response_format": st.sampled_from([{"type": "text"}, {"type": "json_object"}]),
        "top_k": st.integers(0, 9),
    },
)


@given(FIELDS, st.sampled_from([CLAUDE, NOVA]))
def test_any_fields_are_accepted_by_bedrock_or_refused_by_name(fields: Object, model: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    refused: CallerError | None = None
    try:
        body, _ = translated(model, messages=[{"role": "user", "content": "hi"}], tools=[tool], **fields)
    except CallerError as error:
        refused = error
    if refused is not None:
        assert CHAT.field(refused.param or "") in fields
        return
    sent = json.loads(msgspec.json.encode(body))
    assert [*mistakes("Converse", sent), *faults(sent, model)] == []


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────

COUNTS = st.integers(0, 10**6)
USAGE = st.fixed_dictionaries(
    {"inputTokens": COUNTS, "outputTokens": st.integers(1, 10**6)},
    optional={"cacheReadInputTokens": COUNTS, "cacheWriteInputTokens": COUNTS},
)
REASONING = TEXTS.map(
    lambda text: {"reasoningContent": {"reasoningText": {"text": text, "signature": signature(text)}}}
) | st.just({"reasoningContent": {"redactedContent": "aGlkZGVu"}})
CALLS = st.tuples(NAMES, NAMES, ARGUMENTS).map(
    lambda call: {"toolUse": {"toolUseId": call[0], "name": call[1], "input": json.loads(call[2])}}
)
REASONS = ("end_turn", "tool_use", "max_tokens", "stop_sequence", "guardrail_intervened", "content_filtered")
ANSWERS = st.builds(
    lambda content, reason, usage: {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": reason,
        "usage": {**usage, "totalTokens": sum(usage.values())},
        "metrics": {"latencyMs": 1},
    },
    st.lists(TEXTS.map(lambda text: {"text": text}) | REASONING | CALLS, max_size=4),
    st.sampled_from(REASONS),
    USAGE,
)


def streamed(answer: Object, cuts: list[int]) -> list[MessageEvent]:
    """The events of the answer's stream, cut at these places."""
    stream = b"".join([frame(name, fields) for name, fields in events(answer)])
    splitter, reader, out = FrameSplitter(), ConverseEvents(), list[MessageEvent]()
    for a, b in pairwise(sorted({0, *[cut % len(stream) for cut in cuts], len(stream)})):
        for each in splitter.feed(stream[a:b]):
            out += reader.take(each)
    assert reader.is_over
    return out


def assembled(sample: list[MessageEvent]) -> Object:
    """The message that a client of Messages assembles from the events."""
    written = b"".join([MessageWriter().take(each, Usage()) for each in sample]).strip().split(b"\n\n")
    message: Object = {"content": []}
    for event in [json.loads(sse.data_of(each)) for each in written]:
        if event["type"] == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
            pieces = ""
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], message["content"][event["index"]]
            name = next(name for name in delta if name != "type")
            if name == "partial_json":
                pieces += delta[name]
                block["input"] = pieces
            else:
                block[name] += delta[name]
        elif event["type"] == "content_block_stop":
            block = message["content"][event["index"]]
            if isinstance(block.get("input"), str):
                block["input"] = json.loads(block["input"])
        elif event["type"] == "message_delta":
            message |= {**event["delta"], "usage": event["usage"]}
    return message


@given(ANSWERS, st.lists(st.integers(0, 10**4), max_size=6))
def test_a_stream_cut_anywhere_is_the_whole_answer(answer: Object, cuts: list[int]) -> None:
    whole = json.loads(encoded(message_of(json.dumps(answer).encode(), "id", "m")))
    sample = streamed(answer, cuts)
    assert assembled(sample) == {name: whole[name] for name in ("content", "stop_reason", "stop_sequence", "usage")}
    chunks = ChatChunks(0, include_usage=True)
    out = chunks.take(MessageEvent("message_start", message=MessageStart("id", "m")), Usage())
    out += b"".join([chunks.take(each, usage_of(answer["usage"]) or Usage()) for each in sample])
    assert out.endswith(b"data: [DONE]\n\n")


@given(ANSWERS)
def test_all_tokens_are_billed_once_and_by_their_kind(answer: Object) -> None:
    usage, sample = usage_of(answer["usage"]), answer["usage"]
    read, written = sample.get("cacheReadInputTokens", 0), sample.get("cacheWriteInputTokens", 0)
    assert usage is not None
    assert usage.prompt_tokens == sample["inputTokens"] + read + written
    assert (usage.completion_tokens, usage.cached_tokens, usage.cache_write_tokens) == (
        sample["outputTokens"],
        read,
        written,
    )
    assert usage.total_tokens == sample["totalTokens"]
    assert usage.exact


# ── hostile texts ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("delta", [{"redactedContent": "AAAA"}, {"signature": "AAAA"}])
def test_a_block_that_never_ends_is_not_collected_without_bounds(delta: Object) -> None:
    reader, splitter = ConverseEvents(), FrameSplitter()
    delta = {name: value * (MOST_COLLECTED // 16) for name, value in delta.items()}
    (more,) = splitter.feed(frame("contentBlockDelta", {"delta": {"reasoningContent": delta}, "contentBlockIndex": 0}))
    (stop,) = splitter.feed(frame("contentBlockStop", {"contentBlockIndex": 0}))
    for _ in range(5):  # the bound is that of one block
        for each in (more, more, stop):
            reader.take(each)
    for _ in range(3):
        reader.take(more)
    with pytest.raises(BackendError, match="4 MiB"):
        reader.take(more)


def converse(*content: Object, **fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}], **fields}).encode()


def document(**fields: Any) -> Object:
    return {"document": {"name": "d", "format": "txt", "source": {"bytes": "aGk="}, **fields}}


def nested(depth: int) -> bytes:
    schema = {"schema": "[" * depth + "]" * depth}
    form = {"type": "json_schema", "structure": {"jsonSchema": schema}}
    return converse({"text": "q"}, outputConfig={"textFormat": form})


@pytest.mark.parametrize(
    "body",
    [
        converse(document(source={"bytes": "é"})),
        converse({"hologram": {"format": "x"}}),
        converse({"text": "q"}, guardrailConfig={"guardrailIdentifier": "g"}),
        nested(200_000),
    ],
)
def test_a_malformed_request_is_refused(body: bytes) -> None:
    with pytest.raises(CallerError):
        decode(body)


@given(st.integers(800, 1100))
def test_a_deep_request_is_refused_or_read(depth: int) -> None:
    more = converse({"text": "q"}, additionalModelRequestFields={"a": 0})
    for body in (nested(depth), more.replace(b'"a": 0', b'"a": %b%b' % (b"[" * depth, b"]" * depth))):
        with suppress(CallerError):
            decode(body)


def test_new_fields_are_left_out_and_reported_but_not_those_of_other_objects() -> None:
    """The fields of a call's input and of the model itself are no fields of Converse."""
    use = {"toolUse": {"toolUseId": "t", "name": "n", "input": {"new_0": {"new_1": 1}}, "new_2": 2}, "new_3": 3}
    more: Object = {"top_k": 3, "new_4": {"new_5": 4}}
    request = decode(converse(document(new_6=5), use, additionalModelRequestFields=more, new_7=6))
    assert set(request.ignored) == {"new_2", "new_3", "new_6", "new_7"}
    _, call = json.loads(bytes(request.payload.native["messages"]))[0]["content"]
    assert call["input"] == {"new_0": {"new_1": 1}}
    assert json.loads(bytes(request.payload.native["new_4"])) == {"new_5": 4}


def test_a_document_has_its_context_and_citations() -> None:
    about: Object = {"context": "of 1999", "citations": {"enabled": True}}
    (block,) = json.loads(bytes(decode(converse(document(**about))).payload.native["messages"]))[0]["content"]
    assert {name: block.get(name) for name in about} == about


def test_the_work_grows_with_the_request() -> None:
    many = 20_000
    content: list[Object] = [{"text": "a"}, *[{"toolResult": {"toolUseId": str(i)}} for i in range(many)]]
    pages = [blocks.DocumentBlock(blocks.PlainText("x"), title="a") for _ in range(many)]
    start = time.process_time()
    assert _ordered(content) == [*content[1:], content[0]]
    made = ConverseBlocks("anthropic", IgnoredFields(), has_tools=True).of(list(pages), "user")
    assert time.process_time() - start < 3 * slowness()
    names = [block["document"]["name"] for block in made if "document" in block]
    assert names[:3] == ["a", "a 2", "a 3"]
    assert len(set(names)) == many


# ── plain chats ───────────────────────────────────────────────────────────────────────────────────────────

_ROLES = st.sampled_from(["user", "assistant", "tool", "system", "developer"])
_SHORT_IDS = st.sampled_from(["a", "b", "c", "toolu_hr_x", "a.b", ""])
_PARAMETERS = st.sampled_from([{}, {"properties": {}}, {"type": "object"}])
_CONTENTS = st.sampled_from(["hi", "  ", "", "\u3000", "so ", None]) | TEXTS


@st.composite
def loose_chats(draw: st.DrawFn) -> Object:
    """Chats of which many are plain, and many are wrong, blank or in another order."""
    messages = list[Object]()
    for _ in range(draw(st.integers(1, 6))):
        message: Object = {"role": draw(_ROLES), "content": draw(_CONTENTS)}
        if message["role"] == "tool":
            message["tool_call_id"] = draw(_SHORT_IDS)
        elif message["role"] == "assistant":
            named = {"name": draw(st.sampled_from(["f", "a b", "f" * 70])), "arguments": draw(ARGUMENTS | st.just(""))}
            ids = draw(st.lists(_SHORT_IDS, max_size=2))
            message |= (
                {"tool_calls": [{"id": id_, "type": "function", "function": named} for id_ in ids]} if ids else {}
            )
        messages.append(message)
    fields = {
        "tools": st.lists(st.builds(_tool, st.sampled_from(["f", "g.h", "i" * 65]), _PARAMETERS), max_size=2)
        | st.none(),
        "tool_choice": st.sampled_from(["auto", "none", "required", None]),
        "parallel_tool_calls": st.booleans() | st.none(),
        "max_tokens": st.integers(0, 3) | st.none(),
        "max_completion_tokens": st.integers(-1, 3) | st.none(),
        "temperature": st.sampled_from([0, 0.5, 1, 1.5, None]),
        "top_p": st.sampled_from([0.5, 2, None]),
        "stop": st.just("x"),
        "user": st.just("u"),
    }
    return {"messages": messages, **draw(st.fixed_dictionaries({}, optional=fields))}


def _tool(name: str, parameters: Object | None = None) -> Object:
    schema = {"properties": {}} if parameters is None else parameters
    return {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}


def _in_texts(sample: tuple[list[Object], list[str]]) -> Object:
    """A conversation without its pictures, files and thoughts."""
    messages, names = sample
    for message in messages:
        message.pop("thinking_blocks", None)
        if not isinstance(message["content"], str):
            message["content"] = "a text in their place"
    return {"messages": messages, "tools": [_tool(name) for name in names]}


@given(loose_chats() | conversations().map(_in_texts), st.sampled_from([CLAUDE, NOVA]))
@example({"messages": [{"role": "user", "content": "hi"}], "tools": [_tool("f", {})]}, CLAUDE)
def test_a_plain_chat_is_the_same_request_in_one_step_and_in_two(fields: Object, model: str) -> None:
    options = ConverseOptions("anthropic" if model == CLAUDE else "nova", ("a-beta",))
    request = decode_chat(json.dumps({"model": "m", **fields}).encode())
    plain = plain_fields(request.fields, options, 7)
    if plain is None:
        return
    ignored = IgnoredFields()
    message = msgspec.json.encode(message_fields(request, None, 7, ignored))
    native = msgspec.json.decode(message, type=dict[str, msgspec.Raw])
    expected = converse_fields(native, options, ignored, chat=request.fields)
    assert json.loads(msgspec.json.encode(plain)) == json.loads(msgspec.json.encode(expected))
    assert ignored.ignored == []


def test_a_chat_with_tools_is_plain() -> None:
    """Else the property above would compare nothing."""
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Call f."},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "call_1", "content": "12"},
    ]
    request = decode_chat(json.dumps({"model": "m", "messages": messages, "tools": [_tool("f")]}).encode())
    assert plain_fields(request.fields, ConverseOptions("anthropic"), None) is not None
