"""Chats without tools carry no field about tools that a server refuses."""

import json
from itertools import product
from typing import Any

import pytest

from adapters.wire.openai import chat as wire
from adapters.wire.openai.providers import DIALECTS

ABSENT = object()
TOOL = {"type": "function", "function": {"name": "f"}}
NAMED = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize("dialect", ["openai", "vllm", "tgi", "mistral"])
def test_an_empty_list_of_tools_is_not_sent(dialect: str) -> None:
    for tools, choice, parallel in product(
        (ABSENT, None, [], [TOOL]), (ABSENT, None, "auto", "none", "required", NAMED), (ABSENT, None, True, False)
    ):
        given = {"tools": tools, "tool_choice": choice, "parallel_tool_calls": parallel}
        given = {name: value for name, value in given.items() if value is not ABSENT}
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}], **given}
        request = wire.decode_chat(json.dumps(body, indent=1).encode())
        sent = json.loads(wire.upstream_body(request, None, DIALECTS[dialect]))
        demand = {"tool_choice": choice} if choice in ("required", NAMED) else {}
        assert {name: sent[name] for name in given if name in sent} == (given if tools == [TOOL] else demand)
        assert sent["messages"] == body["messages"]
