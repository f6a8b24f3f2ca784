"""The real LLM server behind the doors: fields without a use, the words of its errors, thoughts."""

import os
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters import ignored_fields
from adapters.http1.client import Client
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.wire.anthropic import message_to_chat as anthropic_chat
from runtimes.llm.engine.async_engine import StepRunner
from tests.runtimes.llm.server_fixtures import MODEL, serving
from tests.support.doors import CHATS, FOREIGN, HI, MESSAGES, RESPONSES, Before, Door, door
from tests.support.mind import OPENS, Mind
from tests.support.newer_clients import newer
from tests.support.thoughts import ANSWER, THOUGHT, chat, message, response

pytestmark = pytest.mark.runtimes

CHAT: dict[str, Any] = {"model": MODEL, "messages": HI}
MESSAGE: dict[str, Any] = {**CHAT, "max_tokens": 9}
RESPONSE: dict[str, Any] = {"model": MODEL, "input": "hi"}


@asynccontextmanager
async def llm_door(route: dict[str, Any] | None = None, **server: Any) -> AsyncIterator[Door]:
    async with serving(**server) as running:
        adapter = OpenAIAdapter(Client(f"{running.url}/v1"), ours=True)
        async with door(Before(adapter), models=[{"name": MODEL, "routes": [{"to": "main", **(route or {})}]}]) as made:
            yield made
        await adapter.aclose()


# ── fields without a use ──────────────────────────────────────────────────────────────────────────────

CASES: list[tuple[str, dict[str, Any], str]] = [
    (CHATS, {**CHAT, "verbosity": "low"}, "verbosity"),
    (CHATS, {**CHAT, "metadata": {"a": "b"}}, "metadata"),
    (CHATS, {**CHAT, "prediction": {"type": "content", "content": "so"}}, "prediction"),
    (CHATS, {**CHAT, "stop": ""}, "stop"),
    (CHATS, {**CHAT, "keep_alive": "5m", "max_tokens": -1, "repeat_penalty": 1.1}, "keep_alive"),
    (CHATS, {**CHAT, "stop": ["", "zz"]}, "stop"),
    (RESPONSES, {**RESPONSE, "text": {"verbosity": "low"}}, "text.verbosity"),
    (RESPONSES, {**RESPONSE, "reasoning": {"summary": "detailed"}}, "reasoning.summary"),
    (MESSAGES, {**MESSAGE, "metadata": {"user_id": "u", "team": "t"}}, "metadata"),
    (MESSAGES, {**MESSAGE, "stop_sequences": [""]}, "stop_sequences"),
    (MESSAGES, {**MESSAGE, "thread": {"type": "create"}}, "thread"),
]


@pytest.mark.parametrize("strict", [False, True])
async def test_a_field_without_use_is_listed_by_the_doors_name_or_refused_by_a_strict_route(strict: bool) -> None:
    async with llm_door({"strict": strict}) as d:
        for path, body, name in CASES:
            answer = await d.send("POST", path, body)
            assert answer.status == (400 if strict else 200), await answer.text()
            if not strict:
                assert answer.headers["x-headrace-ignored"] == name
            elif path != MESSAGES:  # whose errors have no field for it
                assert (await answer.json())["error"]["param"].startswith(name.split(".")[0])
        for path, body in ((CHATS, CHAT), (RESPONSES, RESPONSE), (MESSAGES, MESSAGE)):
            answer = await d.send("POST", path, body)
            assert (answer.status, "x-headrace-ignored" in answer.headers) == (200, False)


async def test_a_prediction_passes_with_its_usage_to_a_runtime_that_speculates() -> None:
    text = "The quick brown fox jumps over a lazy dog."
    async with llm_door(text=text, proposes=6) as d:
        answer = await d.send("POST", CHATS, {**CHAT, "prediction": {"type": "content", "content": text}})
        assert (answer.status, "x-headrace-ignored" in answer.headers) == (200, False)
        body = await answer.json()
        assert body["choices"][0]["message"]["content"] == text
        details = body["usage"]["completion_tokens_details"]
        assert details["accepted_prediction_tokens"] > 20
        assert details["rejected_prediction_tokens"] == 0


PASSED: dict[str, dict[str, Any]] = {"/tokenize": {"model": MODEL, "prompt": "hi"}}
GENERATED: dict[str, dict[str, Any]] = {
    CHATS: {**CHAT, "messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}]},
    "/v1/completions": {"model": MODEL, "prompt": "hi"},
    MESSAGES: {**MESSAGE, "system": [{"type": "text", "text": "Be kind."}]},
    RESPONSES: {**RESPONSE, "text": {"format": {"type": "text"}}},
}


@pytest.mark.parametrize("path", [*GENERATED, *PASSED])
async def test_invented_fields_change_no_answer_of_the_engine_and_are_listed(path: str) -> None:
    body = (GENERATED | PASSED)[path]
    async with llm_door() as d:
        answers = [await d.send("POST", path, sent) for sent in (body, newer(body))]
        plain, extended = [await answer.json() for answer in answers]
        assert [answer.status for answer in answers] == [200, 200], extended
        assert plain.get("usage") == extended.get("usage")
        assert plain.get("tokens") == extended.get("tokens")
        assert "x-headrace-ignored" not in answers[0].headers
        assert "new_field_0" in answers[1].headers["x-headrace-ignored"]
    async with llm_door({"strict": True}) as d:
        statuses = [(await d.send("POST", path, sent)).status for sent in (body, newer(body))]
        assert statuses == [200, 400]


async def test_effort_is_accepted_from_both_clients() -> None:
    async with llm_door() as d:
        await d.openai.chat.completions.create(model=MODEL, messages=HI, reasoning_effort="low")
        await d.anthropic.messages.create(model=MODEL, messages=HI, max_tokens=9, output_config={"effort": "low"})


# ── words of errors ───────────────────────────────────────────────────────────────────────────────────

ROUNDS = int(os.environ.get("HEADRACE_FUZZ_ROUNDS", "2"))
PICTURE = "data:image/png;base64,AAAA"
JUNK: tuple[Any, ...] = (
    7, -1, 0.5, 1e300, True, "x", "", [], {}, [7], [{}], {"x": 1}, {"type": "x"}, [{"type": "x"}], "x" * 300, ["x"] * 9,
    [{"role": "x", "content": "y"}], [{"role": "user", "content": 7}], [{"role": "user", "content": [{"type": "x"}]}],
    {"effort": 7}, {"format": {"type": "json_schema", "schema": {"type": 7}}}, {"effort": "x"}, {"user_id": 7},
)  # fmt: skip
CONTENTS: dict[str, tuple[Any, ...]] = {
    CHATS: (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}],
        [{"role": "tool", "content": "x", "tool_call_id": "c"}, {"role": "assistant", "tool_calls": [{"id": 7}]}],
    ),
    RESPONSES: (
        [{"role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]}],
        [{"type": "function_call", "call_id": "c", "name": "a b", "arguments": "{"}],
        [{"type": "function_call_output", "call_id": 7, "output": "x"}],
    ),
    MESSAGES: (
        [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                                                   "data": "AAAA"}}]}],
        [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "a b", "input": {}}]},
         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}],
        [{"role": "user", "content": [{"type": "document", "source": {"type": "base64", "media_type": "x",
                                                                      "data": "A"}}]}],
    ),
}  # fmt: skip
TOOLS: dict[str, Any] = {
    CHATS: [{"type": "function", "function": {"name": "a b", "parameters": {"type": 7}}}],
    RESPONSES: [{"type": "function", "name": "a b", "parameters": {"type": 7}}],
    MESSAGES: [{"name": "a b", "input_schema": {"type": "x", "$ref": "7"}}],
}
OWN = {
    CHATS: ignored_fields.CHAT,
    RESPONSES: ignored_fields.RESPONSE,
    MESSAGES: anthropic_chat.FIELDS | {"thread", "anthropic-beta"},
}
BODY = {CHATS: CHAT | {"max_tokens": 2}, RESPONSES: RESPONSE | {"max_output_tokens": 2}, MESSAGES: MESSAGE}


def bodies(path: str, rng: random.Random) -> list[dict[str, Any]]:
    """One field with a wrong value each, and contents that this model cannot take."""
    body, key = BODY[path], "input" if path == RESPONSES else "messages"
    made = [
        {**body, name: junk} for name in sorted(OWN[path] - {"model", "stream"}) for junk in rng.sample(JUNK, ROUNDS)
    ]
    made += [{**body, key: content} for content in CONTENTS[path]]
    made += [{**body, "tools": TOOLS[path]}, {**body, "tools": TOOLS[path], "tool_choice": {"type": "function"}}]
    return made


def named(message: str) -> set[str]:
    """Fields in backticks, without their inner parts: "Object missing required field `text`" names a part of one."""
    message = re.sub(r"required field `\w+`", "", message)
    return {re.split(r"[.\[]", name)[0] for name in re.findall(r"`([a-z_]+(?:[.\[][^`]*)?)`", message)}


@pytest.mark.parametrize("path", [CHATS, RESPONSES, MESSAGES])
async def test_an_error_names_a_field_of_its_door(path: str) -> None:
    refused = 0
    async with llm_door() as d:
        for body in bodies(path, random.Random(1)):
            answer = await d.send("POST", path, body)
            assert answer.status < 500, (body, await answer.text())
            if answer.status != 400:
                continue
            refused += 1
            error = (await answer.json())["error"]
            if path != MESSAGES and error["param"] is not None:
                head = re.split(r"[.\[]", error["param"])[0]
                assert head in OWN[path] | body.keys(), (body, error)
            words = set(re.findall(r"[a-z_]+", error["message"]))
            assert not words & FOREIGN[path] - set(re.findall(r"[a-z_]+", str(body))), (body, error)
            # Types, as msgspec writes them, and parts of a field stand in backticks too.
            strange = named(error["message"]) & (ignored_fields.FIELDS | anthropic_chat.FIELDS)
            assert strange <= OWN[path] | body.keys(), (body, error)
    assert refused > 20


# ── thoughts ──────────────────────────────────────────────────────────────────────────────────────────


def thinking_door(runner: StepRunner | None = None) -> Any:
    return llm_door(text=f"{THOUGHT}\n</think>\n\n{ANSWER}", template=OPENS, runner=runner)


async def test_thoughts_of_our_engine_are_thoughts_on_every_door() -> None:
    async with thinking_door() as d:
        assert await chat(d.openai) == (THOUGHT, ANSWER)
        assert await response(d.openai) == (THOUGHT, ANSWER)
        assert await message(d.anthropic) == (THOUGHT, ANSWER)


async def test_a_budget_ends_the_thought_on_every_door() -> None:
    async with thinking_door(Mind("a" * 40 + "</think>Hi")) as d:
        enabled: Any = {"type": "enabled", "budget_tokens": 5}
        for fields in ({"thinking_token_budget": 5}, {"thinking": enabled}):
            for thought, text in (await chat(d.openai, extra_body=fields), await response(d.openai, extra_body=fields)):
                assert (thought, bool(text)) == ("aaaaa", True)
        thought, text = await message(d.anthropic, thinking=enabled)
        assert (thought, bool(text)) == ("aaaaa", True)


async def test_a_thought_is_sent_with_the_next_question() -> None:
    async with thinking_door() as d:
        first = await d.anthropic.messages.create(model=MODEL, max_tokens=60, messages=HI)
        turns: Any = [*HI, {"role": "assistant", "content": first.content}, *HI]
        assert (await message(d.anthropic, messages=turns))[1] == ANSWER
        answer: Any = (await d.openai.chat.completions.create(model=MODEL, messages=HI)).choices[0].message
        again = [*HI, answer.model_dump(exclude_none=True), *HI]
        repeated = await d.openai.chat.completions.create(model=MODEL, messages=again)
        assert repeated.choices[0].message.content == ANSWER
