"""The tools of Responses as functions of a chat, and their calls back as the client's own."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response

from adapters.types import Usage
from adapters.wire.openai.known_fields import LeftOut
from adapters.wire.responses import answers
from adapters.wire.responses import requests as wire
from adapters.wire.responses.events import ResponseEvents
from adapters.wire.responses.events import whole as whole_response
from adapters.wire.responses.streamed_items import CustomInput
from adapters.wire.responses.tools import Namespace, ResponseCustomTool, ResponseFunction, ToolNames
from tests.support.chats import DONE, chunk, completion
from tests.support.door_events import response_events
from tests.support.strict_chats import accepted

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: begin hunk+ end"}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": GRAMMAR}
SPAWN = {"type": "function", "name": "spawn_agent", "strict": False, "parameters": {"type": "object"}}
EXEC = {"type": "custom", "name": "exec"}
TOOLS = [
    {"type": "function", "name": "shell", "parameters": {"type": "object"}, "strict": False},
    {"type": "namespace", "name": "collaboration", "description": "Agents.", "tools": [SPAWN]},
    {"type": "web_search", "external_web_access": False, "filters": {"allowed_domains": ["a"]}},
    {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": {}},
    PATCH,
]
LOADED = {"type": "namespace", "name": "functions", "description": "", "tools": [EXEC]}
ADDED = {"type": "additional_tools", "role": "developer", "tools": [LOADED]}
USER = {"type": "message", "role": "user", "content": "go"}
TEXT = '*** Begin Patch\n"ü\\😀'


def decoded(**fields: Any) -> Any:
    return wire.decode(json.dumps({"model": "chat", "input": [USER], **fields}).encode())


def test_the_tools_of_codex_are_functions() -> None:
    request, _, _ = decoded(tools=TOOLS, input=[ADDED, USER], tool_choice="auto", parallel_tool_calls=False)
    functions = {tool["function"]["name"]: tool["function"] for tool in accepted(request)["tools"]}
    assert list(functions) == ["shell", "collaboration__spawn_agent", "apply_patch", "exec"]
    assert request.ignored == ("web_search", "tool_search")
    patch = functions["apply_patch"]
    assert GRAMMAR["definition"] in patch["description"]
    assert (patch["parameters"]["required"], list(patch["parameters"]["properties"])) == (["input"], ["input"])


def test_a_choice_names_the_client_s_tool() -> None:
    for choice, name in (
        ({"type": "custom", "name": "apply_patch"}, "apply_patch"),
        ({"type": "function", "name": "spawn_agent", "namespace": "collaboration"}, "collaboration__spawn_agent"),
    ):
        body = accepted(decoded(tools=TOOLS, tool_choice=choice)[0])
        assert body["tool_choice"] == {"type": "function", "function": {"name": name}}
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}, {"type": "custom", **EXEC}]}
    assert "tools" not in accepted(decoded(tools=TOOLS, tool_choice=allowed)[0])


def test_calls_of_the_history_have_the_names_of_the_chat() -> None:
    spawned = {"type": "function_call", "namespace": "collaboration", "name": "spawn_agent", "arguments": "{}"}
    custom = {"type": "custom_tool_call", "name": "apply_patch", "input": TEXT}
    results = [
        {"type": "function_call_output", "call_id": "1", "output": "done"},
        {"type": "custom_tool_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "failed"}]},
    ]
    items = [USER, {**spawned, "call_id": "1"}, {**custom, "call_id": "2"}, *results]
    for tools in (TOOLS, []):  # a session that is compacted has calls and no tools
        _, assistant, *after = accepted(decoded(input=items, tools=tools)[0])["messages"]
        assert [call["function"]["name"] for call in assistant["tool_calls"]] == [
            "collaboration__spawn_agent",
            "apply_patch",
        ]
        assert json.loads(assistant["tool_calls"][1]["function"]["arguments"]) == {"input": TEXT}
        assert [message["content"] for message in after] == ["done", "failed"]


def answered(*calls: tuple[str, str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The output of a whole answer, which is the same streamed, and the events of the stream."""
    _, body, given_ = decoded(tools=TOOLS, input=[ADDED, USER])
    made, pieces = list[Any](), list[bytes]()
    for i, (name, arguments) in enumerate(calls):
        call = {"id": f"c{i}", "index": i, "type": "function"}
        made.append({**call, "function": {"name": name, "arguments": arguments}})
        pieces.append(chunk({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]}))
        for at in range(0, len(arguments), 3):
            function = {"arguments": arguments[at : at + 3]}
            pieces.append(chunk({"tool_calls": [{"index": i, "function": function}]}))
    chat = completion(None, "tool_calls", tool_calls=made)
    whole = json.loads(whole_response(chat, answers.Shell(body, given_), Usage()))
    Response.model_validate(whole)
    stream = ResponseEvents(answers.Shell(body, given_))
    out = b"".join(stream.take(piece) for piece in [*pieces, chunk({}, "tool_calls"), DONE])
    events = response_events(out + stream.end(Usage()))
    final = events[-1]["response"]["output"]
    assert [{**item, "id": ""} for item in final] == [{**item, "id": ""} for item in whole["output"]]
    assert len({item["id"] for item in (*final, *whole["output"])}) == 2 * len(final)
    return whole["output"], events


def test_calls_are_answered_as_the_client_knows_them() -> None:
    output, events = answered(
        ("shell", '{"command":"ls"}'),
        ("collaboration__spawn_agent", "{}"),
        ("apply_patch", json.dumps({"input": TEXT})),
        ("exec", '{"input": "1"}'),
        ("unknown", "{}"),
    )
    names = [(item["type"], item.get("namespace"), item["name"]) for item in output]
    assert names == [
        ("function_call", None, "shell"),
        ("function_call", "collaboration", "spawn_agent"),
        ("custom_tool_call", None, "apply_patch"),
        ("custom_tool_call", "functions", "exec"),
        ("function_call", None, "unknown"),
    ]
    assert [item.get("input") for item in output] == [None, None, TEXT, "1", None]
    typed = [event for event in events if event["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(event["delta"] for event in typed) == TEXT + "1"
    assert len(typed) > 2
    done = [event["input"] for event in events if event["type"] == "response.custom_tool_call_input.done"]
    assert done == [TEXT, "1"]


def test_a_signature_of_a_call_comes_back_with_the_call() -> None:
    extra = {"google": {"thought_signature": "c2ln"}}
    _, body, given_ = decoded(tools=TOOLS)
    call = {"id": "c1", "index": 0, "function": {"name": "shell", "arguments": "{}"}, "extra_content": extra}
    message = {"choices": [{"message": {"content": "Look.", "tool_calls": [call]}}]}
    whole = json.loads(whole_response(json.dumps(message).encode(), answers.Shell(body, given_), Usage()))
    stream = ResponseEvents(answers.Shell(body, given_))
    out = b"".join(stream.take(piece) for piece in (chunk({"content": "Look."}), chunk({"tool_calls": [call]}), DONE))
    streamed = response_events(out + stream.end(Usage()))[-1]["response"]
    for response in (whole, streamed):
        Response.model_validate(response)
        assert [item["type"] for item in response["output"]] == ["message", "reasoning", "function_call"]
        result = {"type": "function_call_output", "call_id": "c1", "output": "a"}
        messages = accepted(decoded(input=[USER, *response["output"], result, USER])[0])["messages"]
        assert messages[1]["tool_calls"][0]["extra_content"] == extra


names = st.text(max_size=3) | st.sampled_from(["a", "b", "a__b", "x" * 80, "functions"])
made_tools = st.one_of(st.builds(ResponseFunction, name=names), st.builds(ResponseCustomTool, name=names))
sets = st.lists(made_tools | st.builds(Namespace, name=names, tools=st.lists(made_tools, max_size=3)), max_size=5)


@given(sets)
def test_each_tool_has_a_valid_name_that_leads_back(tools: list[Any]) -> None:
    names_of_tools, again = ToolNames(tools), ToolNames(tools)
    own = {
        (tool.name, each.name or "functions")
        for each in tools
        if isinstance(each, Namespace)
        for tool in each.tools
        if not isinstance(tool, LeftOut)
    }
    own |= {(tool.name, "functions") for tool in tools if not isinstance(tool, Namespace)}
    assert len(names_of_tools.functions) == len(own)
    for name, namespace in own:
        in_chat = names_of_tools.in_chat(name, namespace)
        assert in_chat == again.in_chat(name, namespace)
        call = names_of_tools.of_call(in_chat)
        assert (call.name, call.namespace or "functions") == (name, namespace)


def input_of(arguments: str) -> str:
    reader = CustomInput()
    return reader.take(arguments) + reader.end()


texts = st.text() | st.lists(st.sampled_from(["\\", "ud83d", "😀", '"', "a", "\n"])).map("".join)


@given(texts, st.lists(st.integers(1, 5)), st.booleans(), st.sampled_from(["", " ", "\n "]))
def test_the_input_of_a_custom_tool_is_streamed_as_it_is(text: str, cuts: list[int], ascii_: bool, space: str) -> None:
    arguments = "{" + space + json.dumps({"input": text}, ensure_ascii=ascii_)[1:]
    reader, out, at = CustomInput(), "", 0
    for size in cuts:
        out += reader.take(arguments[at : at + size])
        at += size
    out += reader.take(arguments[at:]) + reader.end()
    assert out == "".join(reader.pieces) == input_of(arguments) == text


@given(st.text(max_size=8), st.text(max_size=8))
def test_an_input_in_another_form_is_not_lost(text: str, name: str) -> None:
    assert input_of(json.dumps({name: text})) in (text, json.dumps({name: text}))
    if not text.lstrip().startswith("{"):
        assert input_of(text) == text
