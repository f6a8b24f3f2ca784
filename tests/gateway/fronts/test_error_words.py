"""Errors name the fields of the client's door, for servers of every protocol."""

import os
import random
import re
from typing import Any

import pytest

from adapters.errors import CallerError
from adapters.fake import FakeAdapter, Script
from adapters.wire.anthropic import chat as anthropic_chat
from adapters.wire.field_names import CHAT, MESSAGES, RESPONSES, FieldNames
from adapters.wire.openai import operation_fields
from tests.gateway.fronts.test_ignored_fields import CHATS, HI, Opener
from tests.gateway.fronts.test_ignored_fields import MESSAGES as MESSAGES_PATH
from tests.gateway.fronts.test_ignored_fields import RESPONSES as RESPONSES_PATH
from tests.gateway.fronts.test_ignored_fields import door as door
from tests.runtimes.llm.server_fixtures import MODEL

pytestmark = pytest.mark.runtimes

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
    RESPONSES_PATH: (
        [{"role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]}],
        [{"type": "function_call", "call_id": "c", "name": "a b", "arguments": "{"}],
        [{"type": "function_call_output", "call_id": 7, "output": "x"}],
    ),
    MESSAGES_PATH: (
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
    RESPONSES_PATH: [{"type": "function", "name": "a b", "parameters": {"type": 7}}],
    MESSAGES_PATH: [{"name": "a b", "input_schema": {"type": "x", "$ref": "7"}}],
}
OWN = {
    CHATS: operation_fields.CHAT,
    RESPONSES_PATH: operation_fields.RESPONSE,
    MESSAGES_PATH: anthropic_chat.FIELDS | {"thread", "anthropic-beta"},
}
BODY: dict[str, dict[str, Any]] = {
    CHATS: {"model": MODEL, "messages": HI, "max_tokens": 2},
    RESPONSES_PATH: {"model": MODEL, "input": "hi", "max_output_tokens": 2},
    MESSAGES_PATH: {"model": MODEL, "messages": HI, "max_tokens": 2},
}
FOREIGN = {
    CHATS: {"stop_sequences", "output_config", "tool_use", "input_schema"},
    RESPONSES_PATH: {"max_completion_tokens", "reasoning_effort", "response_format", "tool_call_id", "tool_calls"},
    MESSAGES_PATH: {
        "image_url", "max_completion_tokens", "reasoning_effort", "response_format", "tool_call_id", "tool_calls",
        "parallel_tool_calls", "file_data",
    },
}  # fmt: skip
"""Words of other doors that no error of this one may have."""


def bodies(path: str, rng: random.Random) -> list[dict[str, Any]]:
    """One field with a wrong value each, and contents that this model cannot take."""
    body, key = BODY[path], "input" if path == RESPONSES_PATH else "messages"
    made = [
        {**body, name: junk} for name in sorted(OWN[path] - {"model", "stream"}) for junk in rng.sample(JUNK, ROUNDS)
    ]
    made += [{**body, key: content} for content in CONTENTS[path]]
    made += [{**body, "tools": TOOLS[path]}, {**body, "tools": TOOLS[path], "tool_choice": {"type": "function"}}]
    return made


def named(message: str) -> set[str]:
    """Fields in backticks, without their inner parts."""
    return {re.split(r"[.\[]", name)[0] for name in re.findall(r"`([a-z_]+(?:[.\[][^`]*)?)`", message)}


@pytest.mark.parametrize("path", [CHATS, RESPONSES_PATH, MESSAGES_PATH])
async def test_an_error_names_a_field_of_its_door(door: Opener, path: str) -> None:
    refused = 0
    async with door() as d:
        for body in bodies(path, random.Random(1)):
            status, _, answer = await d.post(path, body)
            assert status < 500, (body, answer)
            if status != 400:
                continue
            refused += 1
            error = answer["error"]
            if path != MESSAGES_PATH and error["param"] is not None:
                head = re.split(r"[.\[]", error["param"])[0]
                assert head in OWN[path] | body.keys(), (body, error)
            words = set(re.findall(r"[a-z_]+", error["message"]))
            assert not words & FOREIGN[path] - set(re.findall(r"[a-z_]+", str(body))), (body, error)
            # Types, as msgspec writes them, and parts of a field stand in backticks too.
            strange = named(error["message"]) & (operation_fields.FIELDS | anthropic_chat.FIELDS)
            assert strange <= OWN[path] | body.keys(), (body, error)
    assert refused > 20


@pytest.mark.parametrize("message", [
    "`messages[1].content[0].image_url` is not supported: this model takes text only.",
    "'max_completion_tokens' must be at most 9.",
    "Invalid value: 'image_url'. Supported values are: 'text'.",
    "At most 0 image_url(s) may be provided in one prompt.",
    "messages[2] has tool_calls without tool_call_id",
])  # fmt: skip
async def test_a_foreign_servers_refusal_is_translated_anew(door: Opener, message: str) -> None:
    fault = CallerError(message, param="messages[1].content")
    for path in (RESPONSES_PATH, MESSAGES_PATH):
        async with door(FakeAdapter(Script(fault=CallerError(fault.message, param=fault.param)))) as d:
            status, _, answer = await d.post(path, BODY[path])
        assert status == 400
        assert not set(re.findall(r"[a-z_]+", answer["error"]["message"])) & FOREIGN[path]
        assert answer["error"].get("param") in (None, "input")


@pytest.mark.parametrize("words", [MESSAGES, RESPONSES, CHAT])
def test_each_word_occurs_once(words: FieldNames) -> None:
    error = CallerError("`messages[0].tool_calls` and `stop_sequences` and `prompt`", param="prompt")
    first = words.of(error).message, error.param
    assert (words.of(error).message, error.param) == first
