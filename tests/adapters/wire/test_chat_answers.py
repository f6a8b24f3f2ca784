"""Answers of chats as many servers write them: each door gives the client the same thoughts, texts and calls."""

import json
from contextlib import suppress
from random import Random
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import BackendError
from adapters.types import Usage
from adapters.wire import sse
from adapters.wire.anthropic import call_ids
from adapters.wire.anthropic.answers import MessageEvents, message_of
from adapters.wire.openai import chat, kept_signatures
from adapters.wire.openai.chat_reader import MAX_ARGUMENTS, MAX_CALLS
from adapters.wire.responses import requests as responses
from adapters.wire.responses.answers import Shell
from adapters.wire.responses.events import ResponseEvents, whole
from adapters.wire.text import chat_translation as translation
from tests.support.door_events import message_of_events, response_of_events

Object = dict[str, Any]
COUNTED = Usage(5, 6)
DONE = b"data: [DONE]\n\n"


class Reference(NamedTuple):
    """What a model answered, and what each door must give back."""

    thoughts: str
    texts: str
    calls: list[tuple[str, Object]]


class Style(NamedTuple):
    """How a server writes it."""

    head: Object
    parts: bool
    thoughts: Literal["reasoning_content", "reasoning", "parts"]
    numbers: Literal["own", "zero", "none"]
    ids: Literal["own", "late", "none", "constant"]
    name: Literal["first", "late", "repeated"]
    arguments: Literal["pieces", "whole", "object", "repeated"]
    mixed: bool
    between: Object | None
    halves: bool
    last: Object
    choice_index: Object
    ends: str
    seed: int


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9).filter(str.strip)
calls = st.lists(
    st.tuples(
        st.sampled_from(["weather", "time", "now"]),
        st.dictionaries(words, st.integers(-9, 9) | words | st.lists(st.just({"x": '}"\\'}), max_size=2), max_size=3),
    ),
    max_size=3,
)
references = st.builds(Reference, st.just("") | words, st.just("") | words, calls)
styles = st.builds(
    Style,
    head=st.sampled_from([{"id": "c", "model": "m"}, {"id": None, "model": None}, {"id": "", "model": ""}, {}]),
    parts=st.booleans(),
    thoughts=st.sampled_from(["reasoning_content", "reasoning", "parts"]),
    numbers=st.sampled_from(["own", "zero", "none"]),
    ids=st.sampled_from(["own", "late", "none", "constant"]),
    name=st.sampled_from(["first", "late", "repeated"]),
    arguments=st.sampled_from(["pieces", "whole", "object", "repeated"]),
    mixed=st.booleans(),
    between=st.sampled_from([None, {"content": "\n"}, {"content": ""}, {"content": None, "tool_calls": []}, {}]),
    halves=st.booleans(),
    last=st.sampled_from([{"choices": []}, {"choices": None}, {}]),
    choice_index=st.sampled_from([{"index": 0}, {"index": None}, {}]),
    ends=st.sampled_from(["\n\n", "\r\n\r\n"]),
    seed=st.integers(0, 2**32),
)


def valid(style: Style) -> Style:
    """Without the combinations in which nothing says where a call begins."""
    if style.numbers != "own":
        has_id = style.ids == "own"
        style = style._replace(mixed=False, name=style.name if has_id else "first")
        if not has_id:
            style = style._replace(ids="none")
    return style


def cut(text: str, chance: Random, *, halves: bool) -> list[str]:
    """Pieces of a text: with `halves`, of its UTF-16, so that a piece may end inside a character."""
    units = [text[i] for i in range(len(text))]
    if halves:
        data = text.encode("utf-16-le")
        units = [data[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(data), 2)]
    out, at = [], 0
    while at < len(units):
        size = chance.randint(1, 4)
        out.append("".join(units[at : at + size]))
        at += size
    return out


def call_pieces(i: int, name: str, given_: Object, style: Style, chance: Random) -> list[Object]:
    text = json.dumps(given_, ensure_ascii=chance.random() < 0.5)
    arguments: list[Any] = cut(text, chance, halves=style.halves)
    if style.arguments in ("whole", "object"):
        arguments = [given_ if style.arguments == "object" else text]
    pieces: list[Object] = [{"function": {"arguments": each}} for each in arguments]
    opener = pieces[0] if chance.random() < 0.5 else {"function": {"arguments": ""}}
    if opener is not pieces[0]:
        pieces.insert(0, opener)
    named = pieces[min(1, len(pieces) - 1)] if style.name == "late" else opener
    named["function"]["name"] = name
    if style.name == "repeated" and style.ids == "own":
        for piece in pieces:
            piece["function"]["name"] = name
    if style.arguments == "repeated":
        pieces.append({"function": {"arguments": text}})
    ids = {"own": f"call_{i}", "constant": "call", "late": f"call_{i}"}.get(style.ids)
    has_all = style.name == "repeated" and style.ids == "own"
    for piece in pieces:
        if style.numbers != "none":
            piece["index"] = i if style.numbers == "own" else 0
        if ids and (has_all or piece is (pieces[-1] if style.ids == "late" else opener)):
            piece["id"] = ids
    return pieces


def deltas(answer: Reference, style: Style, chance: Random) -> list[Object]:
    def content(type_: str, text: str) -> Object:
        if type_ == "thinking":
            return {"content": [{"type": type_, "thinking": [{"type": "text", "text": text}]}]}
        return {"content": [{"type": type_, "text": text}, {"type": "unknown"}] if style.parts else text}

    out: list[Object] = [{"role": "assistant", "content": ""}]
    thoughts = cut(answer.thoughts, chance, halves=style.halves)
    out += [content("thinking", text) if style.thoughts == "parts" else {style.thoughts: text} for text in thoughts]
    out += [content("text", text) for text in cut(answer.texts, chance, halves=style.halves)]
    queues = [call_pieces(i, *call, style, chance) for i, call in enumerate(answer.calls)]
    pieces = [piece for queue in queues for piece in queue]
    if style.mixed:
        openers = [queue.pop(0) for queue in queues]
        order = [i for i, queue in enumerate(queues) for _ in queue]
        chance.shuffle(order)
        pieces = openers + [queues[i].pop(0) for i in order]
    for piece in pieces:
        out.append({"tool_calls": [piece]})
        if style.between is not None:
            out.append(style.between)
    return out


def streamed(answer: Reference, style: Style, chance: Random) -> bytes:
    written_deltas = [{"delta": delta, "finish_reason": None} for delta in deltas(answer, style, chance)]
    chunks: list[Object] = [] if style.head.get("id") else [{**style.head, "choices": [], "prompt_filter_results": []}]
    chunks += [{**style.head, "choices": [{**style.choice_index, **each}]} for each in written_deltas]
    chunks.append({"choices": [{**style.choice_index, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({**style.head, **style.last, "usage": {"prompt_tokens": 7, "completion_tokens": 8.0}})
    written = [json.dumps(chunk) for chunk in chunks] + ["[DONE]"]
    return "".join(f"data: {each}{style.ends}" for each in written).encode()


def whole_answer(answer: Reference, style: Style) -> bytes:
    made: list[Object] = []
    for i, (name, given_) in enumerate(answer.calls):
        arguments = given_ if style.arguments == "object" else json.dumps(given_)
        id_ = {} if style.ids in ("none", "late") else {"id": "call" if style.ids == "constant" else f"call_{i}"}
        made.append({**id_, "type": "function", "function": {"name": name, "arguments": arguments}})
    message: Object = {"role": "assistant", "content": answer.texts or None, "tool_calls": made or None}
    if style.parts:
        message["content"] = [{"type": "text", "text": answer.texts}]
    if style.thoughts == "parts":
        thinking = {"type": "thinking", "thinking": [{"type": "text", "text": answer.thoughts}]}
        message["content"] = [thinking, {"type": "text", "text": answer.texts}]
    else:
        message[style.thoughts] = answer.thoughts
    choice = {**style.choice_index, "message": message, "finish_reason": "stop", "logprobs": {"x": 0.5}}
    body = json.dumps({**style.head, "choices": [choice], "usage": None})
    return body.replace("0.5", "NaN").encode() if style.halves else body.encode()


def shell() -> Shell:
    _, decoded, given_ = responses.decode(b'{"model": "chat", "input": "hi"}')
    return Shell(decoded, given_)


def pieces_of(written: bytes, chance: Random) -> list[bytes]:
    """Whole events, cut at random bytes on their way."""
    splitter, out, at = sse.Splitter(), [], 0
    while at < len(written):
        size = chance.choice([1, 3, 40, 400])
        events = splitter.feed(written[at : at + size])
        out += [b"".join(event + b"\n\n" for event in events)] if events else []
        at += size
    return out


def check_message(message: Object, answer: Reference, style: Style) -> None:
    def texts(type_: str) -> str:
        return "".join(block.get(type_, "") for block in message["content"] if block["type"] == type_)

    assert texts("thinking") == answer.thoughts
    assert texts("text").rstrip("\n") == answer.texts.rstrip("\n")  # some servers write blanks between calls
    assert all(block["text"].strip() for block in message["content"] if block["type"] == "text")
    made = [block for block in message["content"] if block["type"] == "tool_use"]
    assert [(block["name"], block["input"]) for block in made] == answer.calls
    assert len({block["id"] for block in made} - {""}) == len(made)
    assert message["model"] == (style.head.get("model") or "chat")
    assert message["id"].startswith("msg_")
    assert message["stop_reason"] == ("tool_use" if made else "end_turn")


def check_response(response: Object, answer: Reference) -> None:
    def texts(type_: str) -> str:
        parts = [part for item in response["output"] for part in item.get("content", ())]
        return "".join(part["text"] for part in parts if part["type"] == type_)

    assert texts("reasoning_text") == answer.thoughts
    assert texts("output_text").rstrip("\n") == answer.texts.rstrip("\n")
    made = [item for item in response["output"] if item["type"] == "function_call"]
    assert [(item["name"], json.loads(item["arguments"])) for item in made] == answer.calls
    assert len({item["call_id"] for item in made}) == len(made)
    assert response["status"] == "completed"


@settings(max_examples=150, deadline=None)
@given(references, styles.map(valid))
def test_every_door_gives_back_any_servers_stream(answer: Reference, style: Style) -> None:
    chance = Random(style.seed)
    pieces = pieces_of(streamed(answer, style, chance), chance)
    message, response = MessageEvents([], "chat"), ResponseEvents(shell())
    written = b"".join(message.take(piece, COUNTED) for piece in pieces)
    assembled = message_of_events(written)
    check_message(assembled, answer, style)
    assert (assembled["usage"]["input_tokens"], assembled["usage"]["output_tokens"]) == (7, 8)
    written = b"".join(response.take(piece) for piece in pieces)
    assert response.done
    check_response(response_of_events(written + response.end(COUNTED)), answer)
    texts = ""
    for event in b"".join(pieces).split(b"\n\n"):
        if (data := sse.data_of(event)) and data != b"[DONE]":
            chat.read_event(data)  # the door of chats forwards the bytes, and reads them for their usage only
            if not style.halves:
                choices = json.loads(translation.completion_chunk(data))["choices"]
                texts += "".join(choice["text"] for choice in choices)
    assert style.halves or texts.rstrip("\n") == answer.texts.rstrip("\n")


@settings(max_examples=80, deadline=None)
@given(references, styles.map(valid))
def test_every_door_gives_back_any_servers_whole_answer(answer: Reference, style: Style) -> None:
    body = whole_answer(answer, style)
    check_message(json.loads(message_of(body, COUNTED, [], "chat")), answer, style)
    check_response(json.loads(whole(body, shell(), COUNTED)), answer)
    assert chat.usage_of_body(body) is None
    if not style.halves:
        assert json.loads(translation.completion_body(body))["choices"][0]["text"] == answer.texts


def chunk(delta: Object, **fields: Any) -> bytes:
    return sse.encode(json.dumps({"choices": [{"delta": delta}], **fields}).encode())


def call(**fields: Any) -> bytes:
    given_ = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return chunk({"tool_calls": [{**fields, "function": given_}]})


def blocks(*pieces: bytes) -> list[Object]:
    events = MessageEvents([], "chat")
    made: list[Object] = message_of_events(b"".join(events.take(each, COUNTED) for each in (*pieces, DONE)))["content"]
    return made


@pytest.mark.parametrize(
    ("pieces", "inputs"),
    [
        ([call(index=0, id="a", name="f", arguments='{"x"'), call(index=0, id="b", arguments=":1}")], [{"x": 1}]),
        ([call(index=0, id="a", name="f", arguments=""), call(index=0, id="b", name="f", arguments="{}")], [{}, {}]),
        ([call(index=0, id="a", name="f", arguments="{}"), call(index=0, id="b"), call(index=0, name="g")], [{}, {}]),
        ([call(name="f", arguments='{"x"'), chunk({"reasoning": "Hm"}), call(arguments=":1}")], [{"x": 1}]),
        ([chunk({"function_call": {"name": "f"}}), chunk({"function_call": {"arguments": '{"x":1}'}})], [{"x": 1}]),
        ([call(index=0, id="null", name="f"), call(index=1, id="null", name="g")], [{}, {}]),
    ],
    ids=[
        "an id for each piece",
        "no arguments",
        "a late name",
        "a thought inside",
        "function_call",
        "the text null",
    ],
)
def test_where_a_call_begins(pieces: list[bytes], inputs: list[Object]) -> None:
    made = [block for block in blocks(*pieces) if block["type"] == "tool_use"]
    assert [block["input"] for block in made] == inputs
    assert len({block["id"] for block in made}) == len(made)


def test_arguments_that_are_no_object_are_unchanged() -> None:
    events = ResponseEvents(shell())
    written = b"".join(map(events.take, [call(name="f", arguments="a{}"), call(arguments="{}"), DONE]))
    (item,) = response_of_events(written + events.end(COUNTED))["output"]
    assert item["arguments"] == "a{}{}"


def test_a_signature_comes_back_with_its_call() -> None:
    extra = {"google": {"thought_signature": "SIG"}}
    piece = call(index=0, id="functions.f:0", name="f", arguments="{}", extra_content=extra)
    block, made = blocks(piece)
    decoded = kept_signatures.decode(block["data"])
    assert decoded is not None
    assert (decoded.call_id, json.loads(bytes(decoded.extra))) == (made["id"], extra)
    assert call_ids.to_chat(made["id"]) == "functions.f:0"
    events = ResponseEvents(shell())
    reasoning, item = response_of_events(events.take(piece + DONE) + events.end(COUNTED))["output"]
    decoded = kept_signatures.decode(reasoning["encrypted_content"])
    assert decoded is not None
    assert (decoded.call_id, json.loads(bytes(decoded.extra))) == (item["call_id"], extra)


def test_two_answers_of_a_server_with_constant_ids_differ() -> None:
    ids = {message_of_events(MessageEvents([]).take(chunk({}, id="x") + DONE, COUNTED))["id"] for _ in range(2)}
    assert len(ids) == 2


def test_half_a_character_that_is_never_completed_is_replaced() -> None:
    half = b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n'
    assert blocks(half, chunk({})) == [{"type": "text", "text": "a\ufffd"}]
    assert blocks(b'data: {"choices":[{"delta":{"content":"a\xf0"}}]}\n\n') == [{"type": "text", "text": "a\ufffd"}]


def test_calls_are_bounded() -> None:
    for pieces in (
        [call(index=0, name="f", arguments="x" * MAX_ARGUMENTS), call(index=0, arguments="x")],
        [call(index=0, arguments="x" * MAX_ARGUMENTS), call(index=0, arguments="x")],  # held until its name comes
        [call(index=i, id=str(i), name="f", arguments="{}") for i in range(MAX_CALLS + 1)],
    ):
        for door in (MessageEvents([]), ResponseEvents(shell())):
            more = () if isinstance(door, ResponseEvents) else (COUNTED,)
            for piece in pieces[:-1]:
                door.take(piece, *more)
            with pytest.raises(BackendError):
                door.take(pieces[-1], *more)


def test_a_text_that_waits_for_a_call_is_bounded() -> None:
    events = MessageEvents([])
    events.take(call(index=0, name="f", arguments="{"), COUNTED)
    for _ in range(4):
        events.take(chunk({"content": "x" * ((1 << 20) - 1)}), COUNTED)
    with pytest.raises(BackendError):
        events.take(chunk({"content": "x" * (1 << 20)}), COUNTED)


def test_a_call_that_never_gets_a_name_is_the_servers_failure() -> None:
    with pytest.raises(BackendError, match="without a name"):
        blocks(call(index=0, arguments="{}"))
    events = ResponseEvents(shell())
    assert b"response.failed" in events.take(call(index=0, arguments="{}")) + events.end(COUNTED)


names = ["choices", "delta", "content", "tool_calls", "function", "id", "index", "usage", "message", "thinking_blocks"]
json_values = st.recursive(
    st.none() | st.integers() | words, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(names), v)
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=40) | json_values.map(lambda value: json.dumps(value).encode()), max_size=4))
def test_noise_is_read_or_refused(pieces: list[bytes]) -> None:
    message, response = MessageEvents([]), ResponseEvents(shell())
    for piece in pieces:
        event = sse.encode(piece.replace(b"\n", b" "))
        with suppress(BackendError):
            message.take(event, COUNTED)
        with suppress(BackendError):
            response.take(event)
        with suppress(BackendError):
            message_of(piece, COUNTED, [])
        with suppress(BackendError):
            whole(piece, shell(), COUNTED)
    with suppress(BackendError):
        message.end(COUNTED)
    response.end(COUNTED)
