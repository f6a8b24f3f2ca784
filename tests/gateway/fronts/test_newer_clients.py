"""Fields that nobody has invented yet, at every level of the requests of every door, change no status.

The servers are the strict stubs of all protocols, which refuse a field that they do not have.
"""

import json

import pytest

from tests.support.agents.matrix import COLUMNS, provider
from tests.support.doors import CHATS, MESSAGES
from tests.support.newer_clients import CONTENTS, CONVERSE, INVOKE, NEW, RAW_PREDICT, REQUESTS, newer, places
from tests.support.providers.abilities import stage

NATIVE = {
    CHATS: {"openai", "vllm"},
    **{path: {"anthropic", "claude-vertex"} for path in (MESSAGES, INVOKE, RAW_PREDICT)},
    CONTENTS: {"gemini-api", "gemini-vertex"},
    CONVERSE: {"converse"},
}
"""Servers of a door's own protocol: they receive a client's bytes as they are, and judge them."""


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("path", REQUESTS)
async def test_invented_fields_change_no_status(path: str, column: str) -> None:
    if column in NATIVE.get(path, ()):
        pytest.skip("one protocol: the server judges the fields")
    body = REQUESTS[path]
    async with stage(provider(column), max_body=1 << 20) as on:
        for sent in (body, newer(body)):
            answer = await on.door.send("POST", path, sent)
            assert (answer.status, on.script.refused) == (200, []), await answer.text()
        plain, extended = on.script.received
        assert extended == plain
        assert "new_field_0" in answer.headers["x-headrace-ignored"]


@pytest.mark.parametrize("path", REQUESTS)
def test_each_object_of_a_request_is_extended(path: str) -> None:
    written = json.dumps(newer(REQUESTS[path]))
    assert places(REQUESTS[path]) > 5
    assert all(written.count(f'"{name}"') == places(REQUESTS[path]) for name in NEW)
