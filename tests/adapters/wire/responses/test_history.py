"""Sessions of many turns: no item, no field and no order of items ends one."""

import copy
import json
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from openai.types.responses import ResponseInputItem, ResponseOutputItem, Tool

from adapters.errors import CallerError
from adapters.wire.openai.kept_signatures import encode as signature
from adapters.wire.responses import requests as wire
from tests.support.sdk_samples import members, sample
from tests.support.strict_chats import accepted

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"}
FILE = {"type": "input_file", "file_data": "data:x", "filename": "a.pdf"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}}
DOCUMENT = {"type": "file", "file": {"file_data": "data:x", "filename": "a.pdf"}}
USER = {"type": "message", "role": "user", "content": "go"}
CALL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "1", "output": "4"}
THOUGHT = {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
REFUSED = {"item_reference", "compaction_trigger"}
"""Items that have a meaning and cannot be left out."""


def decoded(*items: Any, **fields: Any) -> Any:
    return wire.decode(json.dumps({"model": "chat", "input": items, **fields}).encode())[0]


def messages(*items: Any, careless: bool = False) -> list[dict[str, Any]]:
    decoded_messages: list[dict[str, Any]] = accepted(decoded(*items), careless=careless)["messages"]
    return decoded_messages


def types() -> Iterator[Any]:
    for type_ in (*members(ResponseInputItem), *members(ResponseOutputItem)):
        if type_.__name__ not in ("ItemReference", "CompactionTrigger"):
            yield type_


ITEMS = list(types())
samples = st.builds(
    lambda type_, full, choice: sample(type_, full=full, choice=choice),
    st.sampled_from(ITEMS), st.booleans(), st.integers(0, 5),
)  # fmt: skip
agents = st.sampled_from([
    {"type": "agent_message", "author": "/a", "recipient": "/a", "content": [
        {"type": "input_text", "text": "Task"}, {"type": "encrypted_content", "encrypted_content": "list files"},
    ]},
    {"type": "ghost_snapshot", "ghost_commit": {}}, {"type": "compaction_summary", "encrypted_content": "x"},
    {"type": "new_call", "call_id": "9", "what": [1]}, {"type": "new_call_output", "call_id": "9", "output": {"a": 1}},
    {"type": "x" * 300}, {"type": "new_thing", "content": [{"type": "new_part"}]},
])  # fmt: skip


def check(*items: Any) -> None:
    """A chat, unless the user sends an image or a file without its data."""
    own = [item for item in items if item is not USER and item.get("role") in ("user", "system", "developer")]
    with suppress(CallerError) if own else nullcontext():
        messages(*items, careless=True)


@pytest.mark.parametrize("type_", ITEMS, ids=lambda type_: type_.__name__)
def test_each_type_of_item_may_be_in_a_history(type_: Any) -> None:
    for full in (False, True):
        for choice in range(4):
            check(USER, sample(type_, full=full, choice=choice), USER)


@given(st.lists(samples | agents | st.sampled_from([USER, CALL, RESULT, THOUGHT]), max_size=8))
def test_each_order_of_items_is_a_chat(items: list[Any]) -> None:
    check(*items, USER)


def test_tools_of_each_type_are_functions_or_left_out() -> None:
    for type_ in members(Tool):
        for full in (False, True):
            for choice in range(3):
                accepted(decoded(USER, tools=[sample(type_, full=full, choice=choice)]))


def test_results_follow_their_calls() -> None:
    other, text = {**CALL, "call_id": "2"}, {"role": "assistant", "content": "Hm."}
    results = [RESULT, {**RESULT, "call_id": "2"}]
    roles = ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert [each["role"] for each in messages(USER, text, CALL, other, text, *results, USER)] == roles
    assert [each["role"] for each in messages(USER, CALL, USER, text, RESULT)] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    # The same id may come again, and a result may have no call.
    assert [each["role"] for each in messages(USER, CALL, RESULT, CALL, RESULT, RESULT)][2:] == [
        "tool", "assistant", "tool", "user",
    ]  # fmt: skip


def test_images_and_files_of_results_follow_in_a_message_of_the_user() -> None:
    result = {**RESULT, "output": [{"type": "input_text", "text": "seen"}, IMAGE, FILE]}
    custom = {"type": "custom_tool_call", "call_id": "2", "name": "f", "input": "x"}
    shown = {"type": "custom_tool_call_output", "call_id": "2", "output": [IMAGE]}
    *_, first, second, user = messages(USER, CALL, custom, result, shown)
    assert [first["content"], second["content"]] == ["seen", ""]
    assert user == {"role": "user", "content": [PICTURE, DOCUMENT, PICTURE]}
    assert messages(USER, CALL, result, USER)[-1]["content"] == [PICTURE, DOCUMENT, {"type": "text", "text": "go"}]
    screen = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}
    computer = [{"type": "computer_call", "call_id": "1", "id": "a", "action": {"type": "click"}},
                {"type": "computer_call_output", "call_id": "1", "output": screen}]  # fmt: skip
    assert messages(USER, *computer)[-1]["content"][0]["type"] == "image_url"


def test_calls_that_the_client_runs_stay_and_hosted_ones_are_reported() -> None:
    action = {"type": "exec", "command": ["ls"], "env": {}}
    shell = {"type": "local_shell_call", "id": "a", "call_id": "1", "status": "completed", "action": action}
    output = {"type": "local_shell_call_output", "id": "1", "output": "README"}
    search = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "x"}}
    request = decoded(USER, THOUGHT, search, shell, output, {"type": "compaction", "encrypted_content": "x"}, USER)
    _, assistant, result, _ = accepted(request)["messages"]
    (call,) = assistant["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("local_shell", {"action": action})
    assert (assistant["reasoning_content"], result["content"]) == ("Hm.", "README")
    assert request.ignored == ("web_search_call", "compaction")


def test_the_words_of_another_agent_are_the_user_s() -> None:
    parts = [{"type": "input_text", "text": "Task:"}, {"type": "encrypted_content", "encrypted_content": "list files"}]
    (message,) = messages({"type": "agent_message", "author": "/a", "recipient": "/a/b", "content": parts})
    assert (message["role"], [part["text"] for part in message["content"]]) == ("user", ["Task:", "list files"])


steps = st.lists(st.sampled_from(["think", "say", "call", "custom", "shell", "picture", "ask", "search"]), max_size=12)


@given(steps)
def test_a_session_has_each_thought_and_each_result(steps: list[str]) -> None:
    """A thinking server demands the thoughts of each call, also of those in earlier turns."""
    items: list[Any] = [USER]
    for index, step in enumerate(steps):
        id_ = f"c{index % 3}"
        call = {**CALL, "call_id": id_}
        added: dict[str, list[Any]] = {
            "think": [THOUGHT],
            "say": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}],
            "call": [THOUGHT, call, {**RESULT, "call_id": id_}],
            "custom": [
                THOUGHT, {"type": "custom_tool_call", "call_id": id_, "name": "p", "input": "x"},
                {"type": "custom_tool_call_output", "call_id": id_, "output": "ok"},
            ],
            "shell": [
                THOUGHT, {"type": "reasoning", "encrypted_content": signature(id_, Raw(b'{"a":1}'))}, call,
                {"role": "assistant", "content": "b"}, {**RESULT, "call_id": id_},
            ],
            "picture": [THOUGHT, call, {**RESULT, "call_id": id_, "output": [IMAGE]}],
            "ask": [USER],
            "search": [{"type": "web_search_call", "id": "w", "status": "completed", "action": {}}],
        }  # fmt: skip
        items += added[step]
    messages(*items)


@pytest.mark.parametrize("type_", sorted(REFUSED))
def test_items_for_the_server_itself_are_refused(type_: str) -> None:
    with pytest.raises(CallerError) as refused:
        decoded(USER, {"type": type_, "id": "msg_1"})
    assert refused.value.param == "input[1]"
    assert type_ != "item_reference" or "`store: false`" in refused.value.message


BODY: dict[str, Any] = {
    "model": "gpt", "instructions": "Be brief.", "store": False, "stream": True, "prompt_cache_key": "k",
    "client_metadata": {"x": "y"}, "include": ["reasoning.encrypted_content"], "parallel_tool_calls": False,
    "tool_choice": "auto", "reasoning": {"effort": "low", "summary": "auto"}, "service_tier": "auto",
    "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}},
    "stream_options": {"include_obfuscation": False}, "truncation": "auto", "context_management": [{"type": "c"}],
    "tools": [
        {"type": "function", "name": "f", "parameters": {}}, {"type": "web_search", "filters": {}},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]},
        {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "d"}},
    ],
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]}, USER,
        THOUGHT, CALL, {**RESULT, "output": [{"type": "input_text", "text": "b"}, IMAGE]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c", "annotations": []}]},
        USER,
    ],
}  # fmt: skip


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Each object of the API in a body: not schemas, nor the client's own maps."""
    if isinstance(value, dict):
        yield value
        for name, inner in value.items():
            if name not in ("parameters", "schema", "client_metadata"):
                yield from _objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _objects(inner)


@given(
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from([1, "x", None, {"a": []}, [1]])), min_size=1, max_size=50)
)
def test_invented_fields_change_no_request(invented: list[tuple[int, Any]]) -> None:
    body = copy.deepcopy(BODY)
    places = list(_objects(body))
    for index, (place, value) in enumerate(invented):
        places[place % len(places)][f"invented_{index}"] = value
    request, before = (wire.decode(json.dumps(each).encode())[0] for each in (body, BODY))
    changed = accepted(request)
    assert changed == accepted(before)
    assert {"prompt_cache_key", "client_metadata", "truncation", "web_search"} <= set(request.ignored)
    assert (
        not places[0].keys() & {f"invented_{i}" for i, (_, v) in enumerate(invented) if v} or len(request.ignored) > 5
    )
