"""Thoughts of a model behind the gateway, on every door: from the real LLM server, and from servers of others."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from anthropic.types import TextBlock, ThinkingBlock

from adapters.fake import FakeAdapter, Script
from adapters.http1.client import Client
from adapters.types import Usage
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.wire.anthropic.messages import message_body
from adapters.wire.anthropic.requests import decode_message
from adapters.wire.openai.chat import decode_chat, upstream_body
from adapters.wire.openai.dialects import DIALECTS, OURS, PLAIN, OpenAIDialect
from adapters.wire.openai.ignored_fields import IgnoredFields
from adapters.wire.openai.thinking import of_message
from runtimes.llm.engine.async_engine import StepRunner
from tests.gateway.fronts.test_anthropic_front import chunk, completion
from tests.gateway.fronts.test_ignored_fields import Before, Door
from tests.runtimes.llm.server_fixtures import MODEL, serving
from tests.support.gateways import Rig, config, listening
from tests.support.mind import OPENS, Mind

pytestmark = pytest.mark.runtimes

HI: Any = [{"role": "user", "content": "hi"}]
TEXT = "Well, wörld.\n</think>\n\nHi 😀"
THOUGHT, ANSWER = "Well, wörld.", "Hi 😀"


@asynccontextmanager
async def door(*fakes: FakeAdapter, runner: StepRunner | None = None) -> AsyncIterator[Door]:
    async with AsyncExitStack() as stack:
        if not fakes:
            running = await stack.enter_async_context(serving(TEXT, template=OPENS, runner=runner))
            adapter = OpenAIAdapter(Client(f"{running.url}/v1"), ours=True)
            stack.push_async_callback(adapter.aclose)
            fakes = (Before(adapter),)
        rig = Rig(config(models=[{"name": MODEL, "routes": [{"to": "main"}]}]), {"main": list(fakes)})
        url = await stack.enter_async_context(listening(rig))
        made = Door(rig, url, await stack.enter_async_context(aiohttp.ClientSession()))
        stack.push_async_callback(made.openai.close)
        stack.push_async_callback(made.anthropic.close)
        yield made


async def chat(sdk: openai.AsyncOpenAI, **fields: Any) -> tuple[str, str]:
    """The thoughts and the text, which are the same whole and streamed."""
    whole: Any = (await sdk.chat.completions.create(model=MODEL, messages=HI, **fields)).choices[0].message
    thought, answer_text = "", ""
    async for event in await sdk.chat.completions.create(model=MODEL, messages=HI, stream=True, **fields):
        for choice in event.choices:
            delta: Any = choice.delta
            thought += getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None) or ""
            answer_text += delta.content or ""
    reasoning = getattr(whole, "reasoning_content", None) or getattr(whole, "reasoning", None) or ""
    assert (reasoning, whole.content) == (thought, answer_text)
    return thought, answer_text


async def response(sdk: openai.AsyncOpenAI, **fields: Any) -> tuple[str, str]:
    whole = await sdk.responses.create(model=MODEL, input="hi", **fields)
    thought = "".join([part.text for item in whole.output if item.type == "reasoning" for part in item.content or ()])
    pieces = {"response.reasoning_text.delta": "", "response.output_text.delta": ""}
    async for event in await sdk.responses.create(model=MODEL, input="hi", stream=True, **fields):
        if event.type in pieces:
            pieces[event.type] += getattr(event, "delta", "")
    assert list(pieces.values()) == [thought, whole.output_text]
    return thought, whole.output_text


async def message(sdk: anthropic.AsyncAnthropic, **fields: Any) -> tuple[str, str]:
    fields_of_request: Any = {"model": MODEL, "max_tokens": 100, "messages": HI, **fields}
    whole = await sdk.messages.create(**fields_of_request)
    async with sdk.messages.stream(**fields_of_request) as stream:
        final = await stream.get_final_message()
    assert [block.model_dump() for block in final.content] == [block.model_dump() for block in whole.content]
    thought = "".join([block.thinking for block in whole.content if isinstance(block, ThinkingBlock)])
    return thought, "".join([block.text for block in whole.content if isinstance(block, TextBlock)])


async def test_thoughts_of_our_engine_are_thoughts_on_every_door() -> None:
    async with door() as d:
        assert await chat(d.openai) == (THOUGHT, ANSWER)
        assert await response(d.openai) == (THOUGHT, ANSWER)
        assert await message(d.anthropic) == (THOUGHT, ANSWER)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_thoughts_of_other_servers_are_thoughts_on_every_door(name: str) -> None:
    class Other(FakeAdapter):
        """Answers whole or streamed, as the request requires."""

        async def call(self, request: Any, call: Any) -> Any:
            events = [chunk({name: "Well, "}), chunk({name: "wörld."}), chunk({"content": ANSWER}), chunk({}, "stop")]
            streamed = Script(chunks=(*events, b"data: [DONE]\n\n"), usage=Usage(9, 4))
            whole = Script(chunks=(completion(content=ANSWER, **{name: THOUGHT}),), usage=Usage(9, 4, exact=True))
            return await FakeAdapter(streamed if request.stream else whole).call(request, call)

    async with door(Other()) as d:
        assert await chat(d.openai) == (THOUGHT, ANSWER)
        assert await response(d.openai) == (THOUGHT, ANSWER)
        assert await message(d.anthropic) == (THOUGHT, ANSWER)


async def test_a_budget_ends_the_thought_on_every_door() -> None:
    async with door(runner=Mind("a" * 40 + "</think>Hi")) as d:
        for fields in ({"thinking_token_budget": 5}, {"thinking": {"type": "enabled", "budget_tokens": 5}}):
            for thought, answer_text in (
                await chat(d.openai, extra_body=fields),
                await response(d.openai, extra_body=fields),
            ):
                assert (thought, bool(answer_text)) == ("aaaaa", True)
        thought_and_text = await message(d.anthropic, thinking={"type": "enabled", "budget_tokens": 5})
        assert (thought_and_text[0], bool(thought_and_text[1])) == ("aaaaa", True)


async def test_a_thought_is_sent_with_the_next_question() -> None:
    async with door() as d:
        first = await d.anthropic.messages.create(model=MODEL, max_tokens=60, messages=HI)
        turns: Any = [*HI, {"role": "assistant", "content": first.content}, *HI]
        assert (await message(d.anthropic, messages=turns))[1] == ANSWER
        answer: Any = (await d.openai.chat.completions.create(model=MODEL, messages=HI)).choices[0].message
        again = [*HI, answer.model_dump(exclude_none=True), *HI]
        assert (await d.openai.chat.completions.create(model=MODEL, messages=again)).choices[
            0
        ].message.content == ANSWER


# ── bodies ────────────────────────────────────────────────────────────────────────────────────────────


ENABLED = {"type": "enabled", "budget_tokens": 5}
VARIABLES = {True: {"enable_thinking": True, "thinking": True}, False: {"enable_thinking": False, "thinking": False}}


@pytest.mark.parametrize(
    ("dialect", "thinking", "expected"),
    [
        (OURS, {**ENABLED, "display": "omitted"}, {"thinking": ENABLED}),
        (OURS, {"type": "disabled"}, {"thinking": {"type": "disabled"}}),
        (OURS, None, {}),
        (PLAIN, {"type": "disabled"}, {}),
        (DIALECTS["vllm"], {"type": "adaptive"}, {"chat_template_kwargs": VARIABLES[True]}),
        (DIALECTS["sglang"], {"type": "disabled"}, {"chat_template_kwargs": VARIABLES[False]}),
    ],
)
def test_a_message_s_thinking_as_each_server_of_chats_takes_it(
    dialect: OpenAIDialect, thinking: Any, expected: Any
) -> None:
    fields = {"model": "m", "max_tokens": 9, "messages": HI} | ({} if thinking is None else {"thinking": thinking})
    request = decode_message(json.dumps(fields).encode(), None)
    added = of_message(request.payload.native, request.fields, dialect.thinking)
    body = json.loads(upstream_body(request, None, dialect, "", added))
    assert {name: body[name] for name in ("thinking", "chat_template_kwargs") if name in body} == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"thinking_budget": 2000, "max_thinking_tokens": 3000}, {"type": "enabled", "budget_tokens": 2000}),
        ({"thinking_token_budget": 0}, {"type": "disabled"}),
        ({"enable_thinking": False, "thinking_budget": 5}, {"type": "disabled"}),
        ({"enable_thinking": True}, {"type": "adaptive"}),
        ({"thinking": {"type": "disabled"}, "enable_thinking": True}, {"type": "disabled"}),
        ({"include_reasoning": True}, None),
        ({}, None),
    ],
)
def test_a_chat_s_wishes_as_a_message_has_them(fields: Any, expected: Any) -> None:
    request = decode_chat(json.dumps({"model": "m", "messages": HI, **fields}).encode())
    body = json.loads(message_body(request, None, 4096, IgnoredFields()))
    assert body.get("thinking") == expected
    assert not body.keys() & {"enable_thinking", "thinking_budget", "thinking_token_budget", "include_reasoning"}
