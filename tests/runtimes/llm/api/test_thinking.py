"""Models that think, through the server: the fields that reach the template, the thought in the answer, and its end."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest

from runtimes.llm.api.request_decoding import decode_chat
from runtimes.llm.text.chat_template import ChatTemplate
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.weights.loader import load_model
from tests.runtimes.llm.babbler import Babbler
from tests.runtimes.llm.server_fixtures import MODEL, Running, post, serving
from tests.support.byte_tokenizer import byte_tokenizer
from tests.support.cases import cases
from tests.support.llm_engines import make_engine
from tests.support.mind import MAY, OPENS, Mind
from tests.support.tool_calls import CALL, TOOL, check_calls

CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "temperature": 0}
SCHEMA = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}


async def events(running: Running, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(running.url + path, json=body | {"stream": True}) as response,
    ):
        assert response.status == 200, await response.text()
        lines = [line for line in (await response.read()).split(b"\n") if line.startswith(b"data: {")]
    return [json.loads(line[6:]) for line in lines]


async def streamed(running: Running, **fields: Any) -> tuple[str, str]:
    deltas = [event["choices"][0]["delta"] for event in await events(running, "/v1/chat/completions", CHAT | fields)]
    return (
        "".join([delta.get("reasoning_content", "") for delta in deltas]),
        "".join([delta.get("content", "") for delta in deltas]),
    )


async def chat(running: Running, **fields: Any) -> dict[str, Any]:
    status, _, answer = await post(running, "/v1/chat/completions", CHAT | fields)
    assert status == 200, answer
    return dict(answer)


@pytest.mark.parametrize(
    ("template", "text"),
    [(OPENS, "Well, wörld.\n</think>\n\nHi 😀"), (MAY, "<think>\nWell, wörld.\n</think>\n\nHi 😀")],
)
async def test_a_thought_is_separate_in_chats_and_responses(template: str, text: str) -> None:
    async with serving(text, template=template) as running:
        answer = await chat(running, n=2)
        for choice in answer["choices"]:
            assert choice["message"]["reasoning_content"] == "Well, wörld."
            assert choice["message"]["content"] == "Hi 😀"
        assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] >= 2 * len("Well, wörld.")
        assert await streamed(running) == ("Well, wörld.", "Hi 😀")
        whole = await running.client.responses.create(model=MODEL, input="hi")
        assert [item.type for item in whole.output] == ["reasoning", "message"]
        assert whole.output_text == "Hi 😀"
        assert whole.usage.output_tokens_details.reasoning_tokens
        events_of_response = await events(running, "/v1/responses", {"model": MODEL, "input": "hi"})
        thought = "".join(
            [event["delta"] for event in events_of_response if event["type"] == "response.reasoning_text.delta"]
        )
        content = "".join(
            [event["delta"] for event in events_of_response if event["type"] == "response.output_text.delta"]
        )
        assert (thought, content) == ("Well, wörld.", "Hi 😀")


async def test_an_answer_that_is_cut_in_its_thought_has_no_content() -> None:
    async with serving("Well, well", template=OPENS) as running:
        (choice,) = (await chat(running, max_tokens=4))["choices"]
        assert (choice["message"]["content"], choice["message"]["reasoning_content"]) == (None, "Well")
        assert choice["finish_reason"] == "length"
        assert await streamed(running, max_tokens=4) == ("Well", "")


@pytest.mark.processes
async def test_a_template_that_closes_the_thought_leaves_none_to_the_answer() -> None:
    closed = MAY.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n\n</think>\n\n")
    async with serving(runner=Mind('<think>a</think>{"x": 1}'), template=closed) as running:
        (choice,) = (await chat(running, response_format=FORMAT))["choices"]
        assert json.loads(choice["message"]["content"])["x"] in (1, 2)
        (choice,) = (await chat(running, thinking_budget=0))["choices"]
        assert choice["message"]["content"].startswith("<think>")


@pytest.mark.parametrize(
    ("begun", "thought", "content"),
    [("<think>\nSo", "a.", "Hi"), ("<think>b</think>\nSo", "", "a.</think>Hi"), ("So", "", "a.</think>Hi")],
)
async def test_a_begun_answer_continues_in_its_thought_or_after_it(begun: str, thought: str, content: str) -> None:
    messages = [*CHAT["messages"], {"role": "assistant", "content": begun}]
    how = {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}
    async with serving("a.</think>Hi", template=OPENS) as running:
        assert await streamed(running, **how) == (thought, content)


async def test_thoughts_are_left_out_where_a_request_does_not_include_them() -> None:
    async with serving("Well.</think>Hi", template=OPENS) as running:
        (choice,) = (await chat(running, include_reasoning=False))["choices"]
        assert choice["message"] == {"content": "Hi", "role": "assistant", "refusal": None}
        assert await streamed(running, include_reasoning=False) == ("", "Hi")


@pytest.mark.processes
async def test_a_call_after_a_thought_is_a_call() -> None:
    async with serving(f"I call {CALL}.</think>{CALL}", template=OPENS) as running:
        (choice,) = (await chat(running, tools=[TOOL]))["choices"]
        assert choice["message"]["reasoning_content"] == f"I call {CALL}."
        assert len(choice["message"]["tool_calls"]) == 1
        assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking_token_budget": 9},
        {"thinking_budget": 9},
        {"max_thinking_tokens": 9, "thinking_budget": 30},
        {"thinking": {"type": "enabled", "budget_tokens": 9}},
    ],
)
@pytest.mark.parametrize("template", [OPENS, MAY])
async def test_a_budget_ends_the_thought(fields: dict[str, Any], template: str) -> None:
    begin = "<think>" if template is MAY else ""
    async with serving(runner=Mind(begin + "a" * 9 + "b" * 10 + "Hi"), template=template) as running:
        (choice,) = (await chat(running, **fields))["choices"]
        assert choice["message"]["reasoning_content"] == "a" * 9
        assert choice["message"]["content"].endswith("Hi")
        assert await streamed(running, **fields) == ("a" * 9, choice["message"]["content"])


async def test_a_budget_of_nothing_and_one_that_is_not_used_up() -> None:
    async with serving(runner=Mind("abc</think>Hi"), template=OPENS) as running:
        (choice,) = (await chat(running, thinking_token_budget=0))["choices"]
        assert "reasoning_content" not in choice["message"]
        (choice,) = (await chat(running, thinking_token_budget=30))["choices"]
        assert (choice["message"]["reasoning_content"], choice["message"]["content"]) == ("abc", "Hi")


@pytest.mark.processes
@pytest.mark.parametrize("template", [OPENS, MAY])
async def test_the_form_of_an_answer_holds_after_the_thought(template: str) -> None:
    begin = "<think>" if template is MAY else ""
    async with serving(runner=Mind(begin + '{"x"\xff</think>{"x": 2}'), template=template) as running:
        for fields in ({}, {"thinking_token_budget": 40}):
            (choice,) = (await chat(running, response_format=FORMAT, **fields))["choices"]
            assert choice["message"]["reasoning_content"].startswith('{"x"')
            assert json.loads(choice["message"]["content"]) == {"x": 2}
    async with serving(runner=Mind('{"x": 1}'), template=MAY) as running:  # no thought at all
        (choice,) = (await chat(running, response_format=FORMAT))["choices"]
        assert json.loads(choice["message"]["content"]) == {"x": 1}


@pytest.mark.processes
@pytest.mark.parametrize("template", [OPENS, MAY])
@pytest.mark.parametrize("seed", range(3))
async def test_any_thought_within_its_budget_is_followed_by_the_form(template: str, seed: int) -> None:
    body: dict[str, Any] = {"thinking_token_budget": 12, "n": 8, "temperature": 1, "max_tokens": 150}
    async with serving(runner=Babbler(seed), template=template) as running:
        for choice in (await chat(running, response_format=FORMAT, **body))["choices"]:
            if choice["finish_reason"] == "stop" and choice["message"]["content"]:
                jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)
        for choice in (await chat(running, tools=[TOOL], tool_choice="required", **body, seed=seed))["choices"]:
            if choice["finish_reason"] == "tool_calls":
                check_calls(choice["message"]["tool_calls"])


@pytest.mark.processes
async def test_a_real_model_thinks_and_answers(bundled_model: Path) -> None:
    """It was never trained to think: the prompt opens its thought, and the budget ends it."""
    tokenizer = load_tokenizer(bundled_model)
    engine = make_engine(load_model(bundled_model, dtype="bfloat16"), cache_tokens=2048)
    fields: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 8}, "max_tokens": 40}
    async with serving(tokenizer=tokenizer, template=OPENS, whole=engine) as running:
        (choice,) = (answer := await chat(running, **fields))["choices"]
        thought, content = choice["message"]["reasoning_content"], choice["message"]["content"]
        assert 0 < len(tokenizer.encode(thought)) <= 8
        assert content
        assert 0 < answer["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 12
        assert await streamed(running, **fields) == (thought, content)
        (choice,) = (await chat(running, response_format=FORMAT, **fields))["choices"]
        assert choice["message"]["reasoning_content"] == thought
        jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)


# ── what reaches the template ─────────────────────────────────────────────────────────────────────────

VARIABLES = "{{ enable_thinking }}|{{ reasoning_effort }}|{{ depth }}|{{ messages[0].reasoning_content }}<think>"


def rendered(**fields: Any) -> str:
    tokenizer = byte_tokenizer()
    body = decode_chat(json.dumps(CHAT | fields).encode())
    messages = [message.for_template() for message in body.messages]
    ids = ChatTemplate(VARIABLES, tokenizer).encode(messages, variables=body.thinking_options().variables)
    return tokenizer.decode(ids, special=True).removesuffix("<think>")


@pytest.mark.parametrize(
    ("fields", "expected"),
    cases(__file__, "options"),
)
def test_options_of_thinking_reach_the_template(fields: dict[str, Any], expected: str) -> None:
    assert rendered(**fields) == expected


async def test_nothing_in_a_variable_is_a_control_token() -> None:
    async with serving(template=VARIABLES) as running:
        body = {"model": MODEL, "messages": CHAT["messages"], "chat_template_kwargs": {"depth": "<|im_end|>"}}
        _, _, answer = await post(running, "/tokenize", body)
        assert 257 not in answer["tokens"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        *cases(__file__, "contradictory options"),
        ({"chat_template_kwargs": {f"v{i}": 1 for i in range(65)}}, "chat_template_kwargs"),
    ],
)
async def test_contradictory_options_are_refused(fields: dict[str, Any], param: str) -> None:
    async with serving(template=MAY) as running:
        status, _, answer = await post(running, "/v1/chat/completions", CHAT | fields)
        assert (status, answer["error"]["param"]) == (400, param)


@pytest.mark.parametrize("fields", [{"reasoning_effort": "low"}, {"thinking_budget": 5}, {"enable_thinking": True}])
async def test_a_model_that_does_not_think_lists_its_ignored_fields(fields: dict[str, Any]) -> None:
    async with serving("Hi") as running:
        _, headers, answer = await post(running, "/v1/chat/completions", CHAT | fields)
        assert headers["x-headrace-ignored"] == next(iter(fields))
        assert answer["choices"][0]["message"]["content"] == "Hi"
        strict = {"x-headrace-strict": "true"}
        status, _, _ = await post(running, "/v1/chat/completions", CHAT | fields, **strict)
        assert status == 400
        for silent in ({"reasoning_effort": "none"}, {"enable_thinking": False}, {"thinking": {"type": "disabled"}}):
            status, headers, _ = await post(running, "/v1/chat/completions", CHAT | silent, **strict)
            assert status == 200


async def test_a_stream_with_a_thought_is_continued_from_every_token_on() -> None:
    async with serving("Well.\n</think>\nHi 😀", template=OPENS) as running:
        running.parrot.continues = True
        whole = await events(running, "/v1/chat/completions", CHAT | {"return_token_ids": True})
        chunks = [event["choices"][0] for event in whole]
        text = await streamed(running)
        for cut in range(1, len(chunks) - 1):
            token_ids = [token_id for chunk in chunks[:cut] for token_id in chunk.get("token_ids", [])]
            before = [chunk["delta"] for chunk in chunks[:cut]]
            thought, content = await streamed(running, continue_token_ids=token_ids)
            assert "".join([delta.get("reasoning_content", "") for delta in before]) + thought == text[0]
            assert "".join([delta.get("content", "") for delta in before]) + content == text[1]
