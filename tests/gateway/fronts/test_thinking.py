"""Thoughts of models behind the gateway, on every door and between the wires."""

import json
from typing import Any

import msgspec
import pytest

from adapters.fake import FakeAdapter, Script
from adapters.ignored_fields import IgnoredFields
from adapters.types import Usage
from adapters.wire.anthropic.chat_to_message import message_fields
from adapters.wire.anthropic.requests import decode_message
from adapters.wire.openai.chat import decode_chat, upstream_body
from adapters.wire.openai.dialects import OURS, PLAIN, OpenAIDialect
from adapters.wire.openai.providers import DIALECTS
from adapters.wire.openai.thinking import thinking_of_message
from tests.support.chats import DONE, chunk, completion
from tests.support.doors import HI, door
from tests.support.thoughts import ANSWER, MODEL, THOUGHT, chat, message, response


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_thoughts_of_other_servers_are_thoughts_on_every_door(name: str) -> None:
    class Other(FakeAdapter):
        """Answers whole or streamed, as the request requires."""

        async def call(self, request: Any, call: Any) -> Any:
            events = [chunk({name: "Well, "}), chunk({name: "wörld."}), chunk({"content": ANSWER}), chunk({}, "stop")]
            streamed = Script(chunks=(*events, DONE), usage=Usage(9, 4))
            whole = Script(chunks=(completion(ANSWER, **{name: THOUGHT}),), usage=Usage(9, 4, exact=True))
            return await FakeAdapter(streamed if request.stream else whole).call(request, call)

    async with door(Other(), models=[{"name": MODEL, "routes": [{"to": "main"}]}]) as d:
        assert await chat(d.openai) == (THOUGHT, ANSWER)
        assert await response(d.openai) == (THOUGHT, ANSWER)
        assert await message(d.anthropic) == (THOUGHT, ANSWER)


# ── bodies ──────────────────────────────────────────────────────────────────────────────────────────────


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
    added = thinking_of_message(request.payload.native, request.fields, dialect.thinking)
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
    body = json.loads(msgspec.json.encode(message_fields(request, None, 4096, IgnoredFields())))
    assert body.get("thinking") == expected
    assert not body.keys() & {"enable_thinking", "thinking_budget", "thinking_token_budget", "include_reasoning"}
