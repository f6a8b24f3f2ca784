"""Prompts that a pool marks for its provider's cache, on the way through a whole plan."""

import json
from typing import Any

import pytest

from adapters.fake import FakeAdapter
from adapters.requests import ChatRequest
from adapters.wire.anthropic import requests as anthropic
from adapters.wire.anthropic.message_request import MessagesRequest
from config.loader import ConfigError
from tests.support.gateways import Rig, chat, config

LONG = "word " * 1000
MESSAGES = [{"role": "user", "content": LONG}]


def rig(fake: FakeAdapter, **pool: Any) -> Rig:
    main = {"name": "main", "endpoints": ["http://127.0.0.1:9"], "protocol": "anthropic", **pool}
    return Rig(config(pools=[main]), {"main": [fake]})


async def sent(request: ChatRequest, **pool: Any) -> ChatRequest:
    fake = FakeAdapter()
    made = rig(fake, **pool)
    await made.core.handle(made.principal, request, {}, made.record())
    received = fake.calls[0].request
    assert isinstance(received, ChatRequest)
    return received


async def test_a_chat_of_a_pool_with_the_policy_is_marked_and_no_other() -> None:
    marked = await sent(chat(messages=MESSAGES), prompt_cache={"ttl": "1h"})
    (message,) = json.loads(bytes(marked.fields["messages"]))
    assert message["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    plain = await sent(chat(messages=MESSAGES))
    assert b"cache_control" not in bytes(plain.fields["messages"])


async def test_a_message_stays_a_message_with_a_marked_block() -> None:
    body = {"model": "chat", "max_tokens": 10, "system": LONG, "messages": MESSAGES}
    request = anthropic.decode_message(json.dumps(body).encode(), "")
    marked = await sent(request, prompt_cache={"turns": 0})
    assert isinstance(marked, MessagesRequest)
    assert not marked.payload.reworded
    (block,) = json.loads(bytes(marked.payload.native["system"]))
    assert block == {"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}
    assert b"cache_control" not in bytes(marked.payload.native["messages"])


def test_the_policy_is_refused_where_it_has_no_effect() -> None:
    with pytest.raises((ConfigError, ValueError), match="prompt_cache has no effect"):
        config(pools=[{"name": "main", "endpoints": ["http://127.0.0.1:9"], "prompt_cache": {}}])
    with pytest.raises((ConfigError, ValueError), match="marks nothing"):
        rig(FakeAdapter(), prompt_cache={"system": False, "tools": False, "turns": 0})
