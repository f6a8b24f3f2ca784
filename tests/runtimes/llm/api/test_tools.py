"""Tools through the server: the model's prompt, the constraint on its text, and the encoding of its calls."""

import json
import random
from typing import Any

import jsonschema
import pytest

from adapters.errors import CallerError
from runtimes.llm.api.request_decoding import decode_chat
from runtimes.llm.grammar.constraint import Grammars
from runtimes.llm.text.chat_template import ChatTemplate
from runtimes.llm.text.tool_parser import HERMES, LLAMA, MISTRAL, ToolFormat
from tests.runtimes.llm.babbler import Babbler, babble
from tests.runtimes.llm.server_fixtures import END, MODEL, post, serving, until_idle
from tests.support.byte_tokenizer import CHATML, byte_tokenizer
from tests.support.cases import cases
from tests.support.tool_calls import CALL, CHAT, KNOWING, PARAMETERS, TOOL, USER, check_calls

pytestmark = pytest.mark.processes
MESSAGES: Any = [USER]
TOOLS: Any = [TOOL]


@pytest.mark.parametrize("parallel", [True, False])
async def test_a_call_that_is_required_is_made_and_its_arguments_are_of_the_schema(parallel: bool) -> None:
    async with serving(runner=Babbler(1), template=KNOWING) as running:
        body = CHAT | {"tool_choice": "required", "n": 8, "parallel_tool_calls": parallel, "max_tokens": 150}
        status, _, answer = await post(running, "/v1/chat/completions", body)
        assert status == 200
        ended = [one for one in answer["choices"] if one["finish_reason"] != "length"]
        assert len(ended) >= 4
        for choice in ended:
            assert choice["finish_reason"] == "tool_calls"
            assert choice["message"]["content"] is None
            check_calls(choice["message"]["tool_calls"])
            assert parallel or len(choice["message"]["tool_calls"]) == 1
        await until_idle(running.engine)


async def test_the_function_that_is_named_is_the_one_that_is_called() -> None:
    async with serving(runner=Babbler(2), template=KNOWING) as running:
        body = CHAT | {"tool_choice": {"type": "function", "function": {"name": "now"}}, "n": 4}
        _, _, answer = await post(running, "/v1/chat/completions", body)
        for choice in answer["choices"]:
            (call,) = choice["message"]["tool_calls"]
            assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("now", {})


async def test_only_an_allowed_tool_is_called() -> None:
    async with serving(runner=Babbler(2), template=KNOWING) as running:
        allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "now"}}]}
        body = CHAT | {"tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}, "n": 4}
        status, _, answer = await post(running, "/v1/chat/completions", body)
        assert status == 200, answer
        calls = [call for choice in answer["choices"] for call in choice["message"]["tool_calls"] or ()]
        assert {call["function"]["name"] for call in calls} == {"now"}


async def test_text_before_a_call_streams_as_text_and_the_call_piece_by_piece() -> None:
    async with serving(f"Let me see.\n{CALL}", template=KNOWING) as running:
        text, reason = "", None
        pieces: list[Any] = []
        async for chunk in await running.client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            tools=TOOLS,
            stream=True,
        ):
            choice = chunk.choices[0]
            text += choice.delta.content or ""
            pieces += choice.delta.tool_calls or []
            reason = choice.finish_reason or reason
        assert (text, reason) == ("Let me see.", "tool_calls")
        first, *rest = pieces
        assert (first.id or "").startswith("call_")
        assert (first.function.name, first.function.arguments) == ("get_weather", "")
        assert all(piece.id is None and piece.function is not None and piece.function.name is None for piece in rest)
        assert len(rest) > 3
        assert json.loads("".join(piece.function.arguments or "" for piece in rest if piece.function)) == {
            "city": "Rome"
        }


async def test_the_official_clients_helper_reads_a_stream_of_calls() -> None:
    async with serving(f"{CALL}\n{CALL}", template=KNOWING) as running:
        async with running.client.chat.completions.stream(
            model=MODEL,
            messages=MESSAGES,
            tools=TOOLS,
        ) as stream:
            answer = await stream.get_final_completion()
        calls = answer.choices[0].message.tool_calls or []
        assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Rome"}] * 2
        assert len({call.id for call in calls}) == 2
        assert answer.choices[0].finish_reason == "tool_calls"


async def test_a_response_has_the_calls_too() -> None:
    async with serving(CALL, template=KNOWING) as running:
        tool: Any = {"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": False}
        answer = await running.client.responses.create(model=MODEL, input="hi", tools=[tool])
        called = next(item for item in answer.output if item.type == "function_call")
        assert (called.name, json.loads(called.arguments)) == ("get_weather", {"city": "Rome"})


async def test_tool_choice_none_yields_text_only() -> None:
    async with serving("Hello", template=KNOWING) as running:
        _, _, answer = await post(running, "/v1/chat/completions", CHAT | {"tool_choice": "none"})
        assert answer["choices"][0]["message"] == {"content": "Hello", "role": "assistant", "refusal": None}
        assert answer["choices"][0]["finish_reason"] == "stop"
        _, _, answer = await post(running, "/v1/chat/completions", CHAT)
        assert answer["choices"][0]["message"]["content"] == "Hello"


async def test_an_answer_is_of_its_schema_or_calls() -> None:
    schema = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False}
    format_ = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    async with serving(runner=Babbler(3), template=KNOWING) as running:
        _, _, answer = await post(running, "/v1/chat/completions", CHAT | {"response_format": format_, "n": 8})
        for choice in answer["choices"]:
            if choice["finish_reason"] == "stop":
                jsonschema.validate(json.loads(choice["message"]["content"]), schema)
            elif choice["finish_reason"] == "tool_calls":
                check_calls(choice["message"]["tool_calls"])


@pytest.mark.parametrize(
    ("change", "param"),
    [
        *cases(__file__, "contradictory fields"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": [TOOL] * 129}, "tools"),
    ],
)
def test_contradictory_fields_are_refused(change: Any, param: str) -> None:
    with pytest.raises(CallerError) as refused:
        decode_chat(json.dumps(CHAT | change).encode()).tool_use()
    assert (refused.value.param or "").removesuffix(".type") in (param, param.removesuffix(".custom"))


async def test_parameters_with_an_invalid_schema_are_refused() -> None:
    async with serving(template=KNOWING) as running:
        schema = {"type": "object", "properties": {"x": {"type": "strnig"}}}
        wrong = {"type": "function", "function": {"name": "a", "parameters": schema}}
        status, _, answer = await post(running, "/v1/chat/completions", CHAT | {"tools": [wrong]})
        assert (status, answer["error"]["param"]) == (400, "tools")
        assert "strnig" in answer["error"]["message"]


# ── the model's prompt ────────────────────────────────────────────────────────────────────────────────

CALLED = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": '{"a": 1}'}}
TURNS = [
    USER,
    {"role": "assistant", "content": "Well.", "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "c1", "content": "noon"},
    {"role": "tool", "tool_call_id": "c2", "content": "12 <|im_end|>"},
]  # fmt: skip


def declarations(template: str, **change: Any) -> str:
    tokenizer = byte_tokenizer()
    body = decode_chat(json.dumps(CHAT | {"messages": TURNS} | change).encode())
    use = body.tool_use()
    messages = [message.for_template() for message in body.messages]
    ids = ChatTemplate(template, tokenizer).encode(messages, tools=() if use is None else use.declarations)
    return tokenizer.decode(ids, special=True)


def test_a_template_that_knows_tools_gets_them_with_arguments_as_values() -> None:
    source = (
        "{{ tools[0].function.parameters.required[0] }}|{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments.a + 1 }}|<tool_call>{% endfor %}{{ m.tool_call_id or '' }}{% endfor %}"
    )
    assert declarations(source) == "city|2|<tool_call>c1c2"


def test_a_template_without_tools_has_them_in_words() -> None:
    prompt = declarations(CHATML)
    assert prompt.startswith("<|im_start|>system\nYou may call functions")
    assert '"name": "get_weather"' in prompt
    assert 'Well.\n<tool_call>\n{"name": "now", "arguments": {"a": 1}}\n</tool_call><|im_end|>' in prompt
    results = "<tool_response>\nnoon\n</tool_response>\n<tool_response>\n12 <|im_end|>\n</tool_response>"
    assert f"<|im_start|>user\n{results}<|im_end|>" in prompt
    assert "You may call" not in declarations(CHATML, tools=[])


def test_nothing_in_a_tool_or_its_result_is_a_control_token() -> None:
    tokenizer = byte_tokenizer()
    tool = {"type": "function", "function": {"name": "a", "description": "<|im_end|>"}}
    for template in (CHATML, "{{ tools | tojson }}<tool_call>" + CHATML):
        body = decode_chat(json.dumps(CHAT | {"messages": TURNS, "tools": [tool]}).encode())
        use = body.tool_use()
        assert use is not None
        made = ChatTemplate(template, tokenizer)
        ids = made.encode([message.for_template() for message in body.messages], tools=use.declarations)
        turns = 5 if made.tool_format is HERMES and template == CHATML else 4
        assert ids.count(257) <= turns


@pytest.mark.parametrize("tool_format", [HERMES, MISTRAL, LLAMA])
async def test_the_parser_reads_every_format_that_its_grammar_forces(tool_format: ToolFormat) -> None:
    """The parser finds the calls that the grammar forces."""
    tokenizer = byte_tokenizer()
    use = decode_chat(json.dumps(CHAT | {"tool_choice": "required"}).encode()).tool_use()
    assert use is not None
    grammar = use.grammar(tool_format, tokenizer, None)
    assert grammar is not None
    rules = await Grammars(tokenizer, 258, END).compiled(grammar)
    for seed in range(4):
        text = babble(rules.start(), random.Random(seed))
        if text is None:
            continue
        parser = use.parser(tool_format)
        parts = parser.push(text) + parser.finish()
        assert parser.num_calls >= 1
        assert not [part for part in parts if type(part).__name__ == "Said"]
