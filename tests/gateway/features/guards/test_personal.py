"""Personal data on every API: servers receive placeholders, and clients their own values."""

import json
from typing import Any

import pytest

from adapters.errors import CallerError
from adapters.fake import Script
from adapters.requests import GenerateRequest
from tests.support.cut_streams import PARTS, cuts_of, event, events_of, script
from tests.support.gateways import Rig
from tests.support.guarding import guarded, received
from tests.support.personal import HABITS, PERSONAL, written

EMAIL, CARD = "bob@example.com", "4111 1111 1111 1111"
GEMINI = "/v1beta/models/chat:generateContent"
PROMPT = f"write to {EMAIL} about {CARD}, not to <EMAIL_12345678>"
PROMPTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": PROMPT}]},
    "/v1/completions": {"prompt": PROMPT},
    "/v1/messages": {"max_tokens": 9, "messages": [{"role": "user", "content": PROMPT}]},
    "/v1/responses": {"input": PROMPT, "store": False},
    GEMINI: {"contents": [{"role": "user", "parts": [{"text": PROMPT}]}]},
}
TO, OF, OTHER = written("email", EMAIL), written("card", CARD), written("text", "<EMAIL_12345678>")
ANSWER = f"I wrote to {TO}, about {OF[1:-1].lower()} & not to {OTHER}; a < b"
RESTORED = f"I wrote to {EMAIL}, about {CARD} & not to <EMAIL_12345678>; a < b"
STREAMED = ["/v1/chat/completions", "/v1/messages", "/v1/responses"]


def answer(text: str, arguments: str | None = None) -> Script:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if arguments is not None:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        message["tool_calls"] = [call]
    choice = {"index": 0, "message": message, "text": text, "finish_reason": "stop", "logprobs": {"content": []}}
    return Script(chunks=(json.dumps({"choices": [choice], "usage": {}}).encode(),))


def sent(one: Rig) -> str:
    """The body that the server has received, as fields of a chat."""
    request = one.adapters["main"][0].calls[-1].request
    request = getattr(request, "chat", request)
    assert isinstance(request, GenerateRequest)
    return json.dumps({name: json.loads(bytes(raw)) for name, raw in request.fields.items()}, ensure_ascii=False)


@pytest.mark.parametrize("path", PROMPTS)
async def test_a_whole_answer_has_the_values_again(path: str) -> None:
    one = guarded(answer(ANSWER, json.dumps({"to": TO})), guards=[PERSONAL])
    ((status, body, _),) = await received(one, path, **PROMPTS[path])
    assert status == 200, body
    texts = json.dumps(json.loads(body), ensure_ascii=False)
    assert RESTORED in texts
    assert TO not in texts
    if path != "/v1/completions":
        assert EMAIL in texts.replace(RESTORED, "")  # in the arguments
    assert EMAIL not in sent(one)
    assert CARD not in sent(one)
    assert f"write to {TO} about {OF}, not to {OTHER}" in sent(one)
    assert [(line.guard, line.action, line.on, line.count) for line in one.log.lines[0].guards or ()] == [
        ("people", "mask", "prompt", 2)
    ]


def grown(body: str, path: str) -> str:
    """The text of a stream."""
    events = events_of(body)
    if path == "/v1/responses":
        return "".join(each["delta"] for each in events if each["type"] == "response.output_text.delta")
    if path == "/v1/messages":
        return "".join(each["delta"].get("text", "") for each in events if each["type"] == "content_block_delta")
    return "".join(choice["delta"].get("content") or "" for each in events for choice in each["choices"])


def called(body: str, path: str) -> str:
    """The arguments of the only call of a stream."""
    events = events_of(body)
    if path == "/v1/responses":
        (done,) = [each for each in events if each["type"] == "response.function_call_arguments.done"]
        deltas = [each["delta"] for each in events if each["type"] == "response.function_call_arguments.delta"]
        assert "".join(deltas) == done["arguments"]
        return str(done["arguments"])
    if path == "/v1/messages":
        deltas = [each["delta"] for each in events if each["type"] == "content_block_delta"]
        return "".join(delta.get("partial_json", "") for delta in deltas)
    calls = [call for each in events for choice in each["choices"] for call in choice["delta"].get("tool_calls", ())]
    return "".join(call["function"].get("arguments", "") for call in calls)


@pytest.mark.parametrize("path", STREAMED)
async def test_every_cut_of_a_stream_has_the_values_again(path: str) -> None:
    scripts = [script(cut, PARTS["content"]) for cut in cuts_of(ANSWER, seed=7)]
    one = guarded(*scripts, guards=[PERSONAL])
    for status, body, _ in await received(one, path, len(scripts), stream=True, **PROMPTS[path]):
        assert status == 200
        assert grown(body, path) == RESTORED
        assert TO[1:-1] not in body


@pytest.mark.parametrize("path", STREAMED)
@pytest.mark.parametrize("habit", ["the same", "escapes", "lower case"])
async def test_arguments_of_tools_have_the_values_at_every_depth(path: str, habit: str) -> None:
    write = HABITS[habit]
    inner = json.dumps({"to": f'"{TO}"', "é": OF}, ensure_ascii=False)
    arguments = json.dumps({"q": inner, "to": TO}, ensure_ascii=False).replace(TO, write(TO))
    scripts = [script(cut, PARTS["arguments"]) for cut in cuts_of(arguments, seed=4)]
    one = guarded(*scripts, guards=[PERSONAL])
    for _, body, _ in await received(one, path, len(scripts), stream=True, **PROMPTS[path]):
        decoded = json.loads(called(body, path))
        assert decoded["to"] == EMAIL
        assert json.loads(decoded["q"]) == {"to": f'"{EMAIL}"', "é": CARD}


async def test_values_with_quotes_are_escaped_in_the_arguments_of_a_stream() -> None:
    note = 'note: "so\\ it is"'
    own = {**PERSONAL, "patterns": [{"name": "note", "pattern": 'note: "[^"]{1,20}"'}]}
    name = written("note", note)
    arguments = json.dumps({"q": json.dumps({"n": name})})
    scripts = [script(cut, PARTS["arguments"]) for cut in cuts_of(arguments, seed=4)]
    one = guarded(*scripts, guards=[own])
    prompt = {"messages": [{"role": "user", "content": f"see {note}"}]}
    for _, body, _ in await received(one, "/v1/chat/completions", len(scripts), stream=True, **prompt):
        assert json.loads(json.loads(called(body, "/v1/chat/completions"))["q"]) == {"n": note}


async def test_arguments_leave_before_the_answer_ends() -> None:
    pieces = ['{"q": "', "abc ", TO[:5], TO[5:], " def", '"}']
    made = script(pieces, PARTS["arguments"])
    one = guarded(made, guards=[PERSONAL])
    request = PROMPTS["/v1/chat/completions"]
    ((_, body, _),) = await received(one, "/v1/chat/completions", stream=True, **request)
    calls = [
        call["function"].get("arguments")
        for each in events_of(body)
        for choice in each["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert [call for call in calls if call] == ['{"q": "', "abc ", EMAIL, " def", '"}']


@pytest.mark.parametrize("path", ["/v1/completions", "/v1beta/models/chat:streamGenerateContent?alt=sse"])
async def test_streams_of_completions_and_gemini(path: str) -> None:
    is_gemini = "Gen" in path
    scripts = []
    for cut in cuts_of(ANSWER, seed=9):
        pieces = [json.dumps({"choices": [{"index": 0, "text": piece, "finish_reason": None}]}) for piece in cut]
        end = json.dumps({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
        plain = Script(chunks=tuple(f"data: {each}\n\n".encode() for each in (*pieces, end, "[DONE]")))
        scripts.append(script(cut, PARTS["content"]) if is_gemini else plain)
    one = guarded(*scripts, guards=[PERSONAL])
    fields = PROMPTS[GEMINI] if is_gemini else {**PROMPTS[path], "stream": True}
    for status, body, _ in await received(one, path, len(scripts), **fields):
        assert status == 200
        events = events_of(body)
        if is_gemini:
            parts = [part for each in events for part in each["candidates"][0]["content"]["parts"]]
            assert "".join(part.get("text", "") for part in parts) == RESTORED
        else:
            assert "".join(each["choices"][0]["text"] for each in events) == RESTORED


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_without_personal_data_is_the_same(stream: bool) -> None:
    made = script([f"fine {TO}"], PARTS["content"]) if stream else answer(f"fine {TO}")
    one = guarded(made, guards=[PERSONAL])
    ((_, body, _),) = await received(one, "/v1/chat/completions", stream=stream)
    assert body.encode() == b"".join(made.chunks)


async def test_embeddings_are_masked() -> None:
    one = guarded(Script(chunks=(b'{"data":[{"index":0,"embedding":[1.0]}]}',)), guards=[PERSONAL])
    ((status, body, _),) = await received(one, "/v1/embeddings", input=["fine", EMAIL])
    assert (status, json.loads(body)["data"][0]["embedding"]) == (200, [1.0])
    assert sent(one).count(TO) == 1


async def test_names_of_users_and_metadata_are_masked_too() -> None:
    one = guarded(answer("fine"), guards=[PERSONAL])
    labels: dict[str, Any] = {"user": EMAIL, "metadata": {"who": EMAIL}, "safety_identifier": EMAIL}
    await received(one, "/v1/chat/completions", 1, **labels)
    assert EMAIL not in sent(one)


@pytest.mark.parametrize("stream", [False, True])
async def test_errors_have_neither_values_nor_placeholders(stream: bool) -> None:
    fault = CallerError(f"I cannot read {TO} {OF[1:-1]}.")
    first = event({"content": "a"})
    made = Script(chunks=(first, first), fault=fault, fault_after=1 if stream else 0)
    one = guarded(made, guards=[PERSONAL])
    path = "/v1/chat/completions"
    ((_, body, _),) = await received(one, path, 1, stream=stream, **PROMPTS[path])
    assert "I cannot read […] […]." in body.replace("\\u2026", "…")
    for each in (TO[1:-1], OF[1:-1], EMAIL, CARD):
        assert each not in body


@pytest.mark.parametrize("change", [{"action": "block"}, {"action": "warn"}, {"mode": "monitor"}, {"restore": False}])
async def test_other_actions_are_those_of_every_guard(change: dict[str, Any]) -> None:
    one = guarded(answer("fine"), guards=[{**PERSONAL, **change}])
    path = "/v1/chat/completions"
    ((status, _, headers),) = await received(one, path, **PROMPTS[path])
    if change.get("action") == "block":
        assert (status, one.adapters["main"][0].calls) == (400, [])
    elif "restore" in change:
        assert "write to […] about […], not to <EMAIL_12345678>" in sent(one)
    else:
        assert (PROMPT in sent(one), headers.get("x-headrace-guards") == "people") == (True, "action" in change)


async def test_personal_data_of_the_model_is_masked_for_ever_if_the_guard_reads_answers() -> None:
    one = guarded(answer(f"{TO} knows eve@example.com"), guards=[{**PERSONAL, "on": ["prompt", "answer"]}])
    path = "/v1/chat/completions"
    ((_, body, _),) = await received(one, path, **PROMPTS[path])
    assert json.loads(body)["choices"][0]["message"]["content"] == f"{EMAIL} knows […]"


async def test_other_guards_read_the_answer_before_values_are_in_it() -> None:
    words = {"name": "words", "kind": "words", "words": ["bob"], "action": "block", "on": ["answer"]}
    one = guarded(*[script(cut, PARTS["content"]) for cut in cuts_of(ANSWER, seed=3)], guards=[PERSONAL, words])
    path = "/v1/chat/completions"
    for _, body, _ in await received(one, path, 20, stream=True, **PROMPTS[path]):
        assert grown(body, path) == RESTORED
