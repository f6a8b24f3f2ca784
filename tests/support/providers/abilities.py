"""The checks of the table of abilities: official clients of all doors before the gateway before a provider's stub."""

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest

from adapters import registry
from adapters.registry import Address
from gateway.telemetry import Record
from tests.conformance.recorded import in_page
from tests.support.doors import Before, Door, door_of
from tests.support.gateways import Rig, config
from tests.support.providers.openai_like import THOUGHT
from tests.support.providers.script import Counts, Failure, Provider, Received, Reply, Script, ToolCall, Turn
from tests.support.providers.table import PROVIDERS

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
NAMES = ("look", "add")
ARGUMENTS = '{"text": "käse \\"x\\"","n":1.50}'
"""With a space, an escape and a zero that no encoder writes by itself."""
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()
USER: Any = {"role": "user", "content": "hi"}
PAGE = Path("docs/adapters.md")
BEGIN, END = "<!-- abilities: python -m tests.support.providers.abilities -->", "<!-- end of the abilities -->"
OWN_PAGES = {
    "Anthropic": "anthropic", "Azure": "hosted-apis", "Bedrock": "bedrock", "Claude": "anthropic", "Gemini": "gemini",
    "OpenAI": "hosted-apis", "Vertex": "gemini",
}  # fmt: skip
"""The pages of systems by the first word of their names. All others have a section of one page."""
PRICE = {"prompt": "1 usd/1k", "completion": "2 usd/1k", "cached": "0.5 usd/1k"}


class Stage(NamedTuple):
    """A gateway before a stub, and clients before the gateway."""

    door: Door
    script: Script
    provider: Provider

    @property
    def last(self) -> Received:
        assert self.script.refused == []
        return self.script.received[-1]

    @property
    def record(self) -> Record:
        return self.door.rig.log.records[-1]

    def play(self, *replies: Reply | Failure) -> None:
        self.script.replies.extend(replies)

    async def chat(self, messages: Any = (USER,), **fields: Any) -> Any:
        return await self.door.openai.chat.completions.create(model="chat", messages=list(messages), **fields)

    async def streamed_chat(self, **fields: Any) -> list[Any]:
        stream = await self.chat(stream=True, **fields)
        return [chunk async for chunk in stream]

    async def message(self, messages: Any = (USER,), **fields: Any) -> Any:
        """A message, whole or as its stream adds up."""
        is_streamed = fields.pop("stream", False)
        fields = {"model": "chat", "max_tokens": 4096, "messages": list(messages), **fields}
        if not is_streamed:
            return await self.door.anthropic.messages.create(**fields)
        async with self.door.anthropic.messages.stream(**fields) as stream:
            return await stream.get_final_message()

    async def response(self, given: Any, **fields: Any) -> list[Any]:
        """The items of a Response with tools."""
        tools: Any = [{"type": "function", "strict": False, **one["function"]} for one in _functions()]
        answer = await self.door.openai.responses.create(model="chat", input=given, tools=tools, **fields)
        return [item.model_dump(exclude_none=True) for item in answer.output]


@asynccontextmanager
async def stage(provider: Provider, **limits: int) -> AsyncIterator[Stage]:
    """The stage of one check. `limits` are those of the door."""
    script = Script()
    async with provider.serve(script) as url:
        pools = [{"name": "main", **provider.pool(url)}]
        models = [{"name": "chat", "price": PRICE, "routes": [{"to": "main", "retry": {"attempts": 1}}]}]
        made = config(pools=pools, models=models)
        adapter = registry.make(made.pools[0], Address(made.pools[0].endpoints[0].url))
        try:
            await adapter.probe(300.0)
            async with door_of(Rig(made, {"main": [Before(adapter)]}), **limits) as door:
                yield Stage(door, script, provider)
        finally:
            await adapter.aclose()


# ── abilities ─────────────────────────────────────────────────────────────────────────────────────────────


def _functions() -> list[Any]:
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
    return [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in NAMES]


def _message_tools() -> list[Any]:
    return [{"name": name, "input_schema": {"type": "object", "properties": {}}} for name in NAMES]


async def tools(on: Stage) -> None:
    """A demanded call, a named tool, and the result of a call in the next turn."""
    await _loop(on, (ToolCall("call_a1", "look", ARGUMENTS),))
    for choice, demand in (({"type": "function", "function": {"name": "look"}}, "look"), ("none", "none")):
        await on.chat(tools=_functions(), tool_choice=choice)
        if demand == "none" and not on.last.tools:
            continue  # a provider without such a choice gets no tools
        assert on.last.demand == demand
        assert "look" in on.last.tools


async def parallel_tools(on: Stage) -> None:
    """Two calls of one answer, and their results."""
    await _loop(on, (ToolCall("call_a1", "look", ARGUMENTS), ToolCall("call_b2", "look", '{"text":"b"}')))


async def _loop(on: Stage, calls: tuple[ToolCall, ...]) -> None:
    """A loop over three doors, whole and streamed. The stub receives its own ids and arguments."""
    expected = [(call.name, json.loads(call.arguments)) for call in calls]
    results = tuple(Turn("tool", f"r{call.id}", call_id=call.id) for call in calls)
    for is_streamed in (False, True):
        on.play(Reply("", THOUGHT, calls), Reply("done"))
        turn = await _chat_turn(on, is_streamed)
        made = [(one["function"]["name"], json.loads(one["function"]["arguments"])) for one in turn["tool_calls"]]
        assert made == expected
        answers = zip(turn["tool_calls"], results, strict=True)
        given = [{"role": "tool", "tool_call_id": call["id"], "content": result.text} for call, result in answers]
        history = [USER, turn, *given]
        answer = await on.chat(history, tools=_functions())
        assert answer.choices[0].message.content
        assert [turn.role for turn in on.last.turns] == ["user", "assistant", *("tool" for _ in results)]
        assert on.last.turns[2:] == results
        _same(on, calls, has_thoughts=not is_streamed)
        on.play(Reply("", THOUGHT, calls), Reply("done"))
        message = await on.message(tools=_message_tools(), tool_choice={"type": "any"}, stream=is_streamed)
        assert on.last.demand == "required"
        uses = [block for block in message.content if block.type == "tool_use"]
        assert [(block.name, block.input) for block in uses] == expected
        assert message.stop_reason == "tool_use"
        given = [
            {"type": "tool_result", "tool_use_id": block.id, "content": f"r{call.id}"}
            for block, call in zip(uses, calls, strict=True)
        ]
        blocks = [block.model_dump(exclude_none=True) for block in message.content]
        history = [USER, {"role": "assistant", "content": blocks}, {"role": "user", "content": given}]
        await on.message(history, tools=_message_tools())
        assert on.last.turns[2:] == results
        _same(on, calls, has_thoughts=True)
    on.play(Reply("", THOUGHT, calls), Reply("done"))
    items = await on.response("hi", tool_choice="required")
    assert [(one["name"], json.loads(one["arguments"])) for one in items if one["type"] == "function_call"] == expected
    made = [item["call_id"] for item in items if item["type"] == "function_call"]
    outputs = [
        {"type": "function_call_output", "call_id": id_, "output": result.text}
        for id_, result in zip(made, results, strict=True)
    ]
    await on.response([USER, *items, *outputs])
    assert on.last.turns[2:] == results
    _same(on, calls, has_thoughts=True)


async def _chat_turn(on: Stage, is_streamed: bool) -> Any:
    """The turn of the model as a client puts it into its history."""
    if not is_streamed:
        answer = await on.chat(tools=_functions(), tool_choice="required")
        assert on.last.demand == "required"
        turn = answer.choices[0].message.model_dump(exclude_none=True, warnings=False)
        for call in turn["tool_calls"]:
            if not isinstance(call["function"]["arguments"], str):  # Mistral's, which its own client reads
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        return turn
    calls: dict[str, Any] = {}
    last = ""
    for chunk in await on.streamed_chat(tools=_functions(), tool_choice="required"):
        for piece in (chunk.choices[0].delta.tool_calls or ()) if chunk.choices else ():
            last = piece.id or last
            call = calls.setdefault(last, {"id": last, "type": "function", "function": {"name": "", "arguments": ""}})
            text = piece.function.arguments or ""
            call["function"]["name"] += piece.function.name or ""
            call["function"]["arguments"] += text if isinstance(text, str) else json.dumps(text)
    return {"role": "assistant", "tool_calls": list(calls.values())}


def _same(on: Stage, calls: tuple[ToolCall, ...], *, has_thoughts: bool) -> None:
    """The provider has received its own turn."""
    turn = on.last.turns[1]
    assert [(one.id, one.name, json.loads(one.arguments)) for one in turn.calls] == [
        (one.id, one.name, json.loads(one.arguments)) for one in calls
    ]
    if has_thoughts and on.provider.replays_thoughts:
        assert turn.thoughts == THOUGHT


async def images(on: Stage) -> None:
    """A picture in a chat and in a message."""
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    await on.chat([{"role": "user", "content": [{"type": "text", "text": "look"}, part]}])
    assert on.last.turns[-1] == Turn("user", "look", images=1)
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    await on.message([{"role": "user", "content": [{"type": "text", "text": "look"}, block]}])
    assert on.last.turns[-1] == Turn("user", "look", images=1)


async def schema(on: Stage) -> None:
    """An answer in the form of a schema."""
    json_schema = {"name": "a", "schema": SCHEMA, "strict": True}
    await on.chat(response_format={"type": "json_schema", "json_schema": json_schema})
    assert on.last.schema == SCHEMA


async def thinking(on: Stage) -> None:
    """The wish to think, thoughts as blocks of a message, and the next turn."""
    for wish, thinks in (({"type": "enabled", "budget_tokens": 1024}, True), ({"type": "disabled"}, False)):
        for is_streamed in (False, True):
            on.play(Reply("so", thoughts=THOUGHT))
            message = await on.message(thinking=wish, stream=is_streamed)
            assert on.last.thinks is thinks
            assert on.last.length == 4096
            blocks = [block.model_dump(exclude_none=True) for block in message.content]
            _thinks(on, message)
            assert next(block["text"] for block in blocks if block["type"] == "text") == "so"
            await on.message([USER, {"role": "assistant", "content": blocks}, USER], thinking=wish)
            assert on.last.turns[1].text == "so"
            assert on.last.turns[1].thoughts in (None, "", THOUGHT)


def _thinks(on: Stage, message: Any) -> None:
    thoughts = [block.thinking for block in message.content if block.type == "thinking"]
    assert thoughts == ([THOUGHT] if on.provider.has_thoughts else [])


async def _no_thinking(on: Stage) -> None:
    """The wish is left out and reported. Thoughts are blocks of a message."""
    for is_streamed in (False, True):
        on.play(Reply("so", thoughts=THOUGHT))
        message = await on.message(thinking={"type": "enabled", "budget_tokens": 1024}, stream=is_streamed)
        _thinks(on, message)
        assert on.last.thinks is None
        assert "thinking" in on.record.ignored


async def cache(on: Stage) -> None:
    """Tokens of the provider's cache, at their price."""
    counts = Counts(20, cached=8)
    for is_streamed in (False, True):
        on.play(Reply(counts=counts))
        message = await on.message(stream=is_streamed)
        assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (12, 8)
        assert str(on.record.cost) == "0.034 usd"


async def _no_cache(on: Stage) -> None:
    await on.chat()
    assert on.record.usage is not None
    assert (on.record.usage.cached_tokens, on.record.usage.exact) == (0, True)


async def usage(on: Stage) -> None:
    """The tokens that the provider counts are those that are billed, with the reasoning."""
    counts = Counts(20, completion=9, reasoning=4)
    for fields in ({}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}):
        on.play(Reply(counts=counts))
        answer = await on.chat(**fields)
        if fields:
            assert [chunk async for chunk in answer]
        billed = on.record.usage
        assert billed is not None
        assert (billed.prompt_tokens, billed.completion_tokens, billed.exact) == (20, 9, True), fields
        assert billed.reasoning_tokens in (0, 4)
        assert str(on.record.cost) == "0.038 usd"


async def errors(on: Stage) -> None:
    """Each failure has its code, its price of nothing, and its effect on the endpoint."""
    breaker = on.door.rig.endpoints["main"][0].breaker
    clock = on.door.rig.core.clock
    for _ in range(12):
        on.play("moderation")
        if on.provider.filters:
            assert (await on.chat()).choices[0].finish_reason == "content_filter"
        else:
            await _fails(on, 400)
    assert (breaker.is_open, breaker.rests(clock())) == (False, 0)
    assert len(on.script.received) == 12, "each was sent once"
    on.play("in the stream")
    with pytest.raises(openai.APIError):
        await on.streamed_chat()
    on.play("rate")
    await _fails(on, 503, "overloaded")
    assert not breaker.is_open


async def no_credit(on: Stage) -> None:
    on.play("no credit")
    await _fails(on, 503, "upstream_quota_exhausted")
    breaker = on.door.rig.endpoints["main"][0].breaker
    assert not breaker.is_open
    assert breaker.rests(on.door.rig.core.clock()) > 0


async def bad_key(on: Stage) -> None:
    on.play("bad key")
    await _fails(on, 502, "upstream_credential")


async def _fails(on: Stage, status: int, code: str = "") -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        await on.chat()
    assert caught.value.status_code == status, caught.value
    assert not code or caught.value.code == code, caught.value
    assert not on.record.cost or on.record.cost.picos == 0


Check = Callable[[Stage], Awaitable[None]]
ABILITIES: Mapping[str, tuple[Check, ...]] = {
    "tools": (tools,),
    "parallel tools": (parallel_tools,),
    "images": (images,),
    "schema": (schema,),
    "thinking": (thinking,),
    "cache": (cache,),
    "usage": (usage,),
    "errors": (errors, no_credit, bad_key),
}
"""The checks of each column of the table."""
_REFUSED: Mapping[str, tuple[str, Check]] = {
    "tools": ("tools", tools),
    "parallel tools": ("tools", parallel_tools),
    "images": ("messages", images),
    "schema": ("response_format", schema),
}
"""The field that the refusal of a lacking ability names, and the first request of its check."""
_LEFT_OUT: Mapping[str, Check] = {"thinking": _no_thinking, "cache": _no_cache}


async def proves(provider: Provider, ability: str) -> None:
    """Prove a cell: the ability works, or is refused by its field's name, or is left out and reported."""
    if ability not in provider.lacks:
        for check in ABILITIES[ability]:
            async with stage(provider) as on:
                await check(on)
        return
    async with stage(provider) as on:
        if ability in _LEFT_OUT:
            await _LEFT_OUT[ability](on)
            return
        name, check = _REFUSED[ability]
        with pytest.raises(openai.BadRequestError) as caught:
            await check(on)
        assert caught.value.param == name
        assert (on.script.received, on.script.refused) == ([], [])


def table(providers: Mapping[str, Provider]) -> str:
    """The table as Markdown: ✓, or – with a number of the reasons below it."""
    reasons: dict[str, int] = {}
    lines = [_line(["provider", *ABILITIES]), _line(["---"] * (len(ABILITIES) + 1))]
    for provider in sorted(providers.values(), key=lambda one: one.system.lower()):
        cells = [
            "✓" if (why := provider.lacks.get(ability)) is None else f"– {reasons.setdefault(why, len(reasons) + 1)}"
            for ability in ABILITIES
        ]
        lines.append(_line([f"[{provider.system}]({_example(provider.system)})", *cells]))
    return "\n".join([*lines, "", *(f"{number}. {why}" for why, number in reasons.items())])


def _example(system: str) -> str:
    """The link to a system's example."""
    first = system.partition(",")[0]
    if system.endswith("OpenAI API") and first.split()[0] in OWN_PAGES:
        return "servers/hosted-apis.md"
    if page := OWN_PAGES.get(first.split()[0]):
        return f"servers/{page}.md"
    return f"servers/providers.md#{first.lower().replace('.', '').replace(' ', '-')}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """The page with the table of all providers."""
    return in_page(PAGE.read_text(), table(PROVIDERS) + "\n", BEGIN, END)


if __name__ == "__main__":
    PAGE.write_text(page())
