"""Sessions of Responses that move between servers of chats and servers of Responses, which refuse foreign thoughts."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from adapters.ignored_fields import IgnoredFields
from adapters.types import Usage
from adapters.wire.openai import chat
from adapters.wire.openai.dialects import AUTO
from adapters.wire.openai.providers import DIALECTS
from adapters.wire.responses import requests as responses
from adapters.wire.responses.answers import Shell
from adapters.wire.responses.events import whole
from adapters.wire.responses.own_thoughts import without_own_thoughts
from tests.support.strict_servers import SERVERS, chat_answer, signature

Object = dict[str, Any]
TOOL: Object = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}


def faults(items: list[Object]) -> Iterator[str]:
    """What OpenAI's API refuses in an input that is not stored."""
    due = set[str]()
    for item in items:
        if item.get("type") == "reasoning":
            if not item.get("encrypted_content"):
                yield f"Item with id '{item.get('id')}' not found"
            elif item["encrypted_content"] != signature(str(item.get("id")), "responses"):
                yield "The encrypted content could not be verified"
        if item.get("type") == "function_call":
            due.add(item["call_id"])
        if item.get("type") == "function_call_output":
            if item["call_id"] not in due:
                yield f"No tool call found for {item['call_id']}"
            due.discard(item["call_id"])
    if due:
        yield f"No tool output found for {due}"


def own_answer(calls: int, nth: int) -> list[Object]:
    """An output of OpenAI's, with encrypted reasoning."""
    id_ = f"rs_{nth:050x}"
    out: list[Object] = [
        {"type": "reasoning", "id": id_, "summary": [], "encrypted_content": signature(id_, "responses")}
    ]
    if not calls:
        part = {"type": "output_text", "text": f"answer {nth}", "annotations": []}
        return [*out, {"type": "message", "id": f"msg_{nth:050x}", "role": "assistant", "content": [part]}]
    return out + [
        {
            "type": "function_call",
            "id": f"fc_{nth}{i}",
            "call_id": f"call_{nth}{i}",
            "name": "weather",
            "arguments": "{}",
        }
        for i in range(calls)
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["responses", "openai", "vllm", "gemini", "deepseek"]), st.integers(0, 1)),
        min_size=2,
        max_size=7,
    )
)
def test_a_session_that_moves_to_a_server_of_responses_is_never_refused(plan: list[tuple[str, int]]) -> None:
    history: list[Object] = [{"role": "user", "content": "q"}]
    for nth, (server, calls) in enumerate(plan):
        sent = json.dumps({"model": "m", "store": False, "tools": [TOOL], "input": history}).encode()
        request, body, given_ = responses.decode(sent)
        if server == "responses":
            received = json.loads(bytes(without_own_thoughts({"input": Raw(json.dumps(history).encode())})["input"]))
            assert list(faults(received)) == []
            assert [item for item in received if item.get("type") != "reasoning"] == [
                item for item in history if item.get("type") != "reasoning"
            ]
            output = own_answer(calls, nth)
        else:
            dialect = DIALECTS.get(SERVERS[server].dialect or "", AUTO)
            request.payload.report(IgnoredFields())
            chatted = json.loads(chat.upstream_body(request, None, dialect))
            assert list(SERVERS[server].faults(chatted)) == []
            answer = json.dumps(chat_answer(server, ["weather"][:calls], nth)).encode()
            output = json.loads(whole(answer, Shell(body, given_), Usage()))["output"]
        history += output
        called = [item["call_id"] for item in output if item["type"] == "function_call"]
        history += [{"type": "function_call_output", "call_id": id_, "output": "r"} for id_ in called]
        if not called:
            history.append({"role": "user", "content": f"and {nth}?"})


@given(st.binary(max_size=60) | st.just(b'[{"id":"rs_' + b"a" * 36 + b'","type":7}]') | st.just(b'"text"'))
def test_an_input_without_such_items_stays_as_it_is(given_: bytes) -> None:
    fields = {"input": Raw(given_), "model": Raw(b'"m"')}
    assert without_own_thoughts(fields) is fields
    assert without_own_thoughts({}) == {}
