"""Cached contents: which prompts have one, and what becomes of a request whose cache is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CallerError, InferenceError
from adapters.registry import Address, make
from adapters.requests import ModelRequest
from adapters.upstreams.gemini import cached_contents
from adapters.upstreams.gemini.client import GeminiAdapter
from adapters.wire.anthropic import requests as anthropic
from adapters.wire.gemini import requests as native
from adapters.wire.openai import chat as openai
from tests.support.gateways import config
from tests.support.openai_answers import within
from tests.support.providers.gemini import KEY, LOCATION, MODEL, OTHER_KEY, PROJECT, TOKEN, Gemini, gemini

Object = dict[str, Any]
MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
LONG = "words " * 1500
SYSTEM = {"role": "system", "content": LONG, **MARK}
PLACE = f"projects/{PROJECT}/locations/{LOCATION}"
VERTEX = {"protocol": {"name": "vertex", "project": PROJECT, "location": LOCATION}, "key": TOKEN}


def chat(*messages: Object, **fields: Any) -> ModelRequest:
    return openai.decode_chat(json.dumps({"model": "ours", "messages": list(messages), **fields}).encode())


def user(text: Any, **fields: Any) -> Object:
    return {"role": "user", "content": text, **fields}


def assistant(text: str) -> Object:
    return {"role": "assistant", "content": text}


def message(**fields: Any) -> ModelRequest:
    return anthropic.decode_message(json.dumps({"model": "ours", "max_tokens": 9, **fields}).encode(), "")


class Rig:
    """An adapter before Google's stand-in."""

    def __init__(self, adapter: GeminiAdapter, server: Gemini) -> None:
        self.adapter = adapter
        self.server = server

    async def send(self, request: ModelRequest, *, tenant: str = "acme", strict: bool = False) -> tuple[Answer, Call]:
        """Send a request, and wait for the end of what it has begun in the background."""
        call = within()
        call.tenant, call.ignored.strict = tenant, strict
        answer = await self.adapter.call(request, call)
        async for _ in answer:
            pass
        await self.settled()
        return answer, call

    async def settled(self) -> None:
        caches = self.adapter.caches
        while caches is not None and caches._tasks:
            await asyncio.gather(*caches._tasks.values())

    @property
    def named(self) -> list[str | None]:
        """The caches that the requests have named, in order."""
        return [body.get("cachedContent") for body in self.server.bodies]

    @property
    def created(self) -> list[Object]:
        return self.server.caches.created


@asynccontextmanager
async def adapting(server: Gemini, **fields: Any) -> AsyncIterator[Rig]:
    section = {"key": KEY, "model": MODEL, "protocol": {"name": "gemini"}} | fields
    (pool,) = config(pools=[{"name": "main", "endpoints": [server.url], **section}]).pools
    adapter = make(pool, Address(server.url))
    assert isinstance(adapter, GeminiAdapter)
    yield Rig(adapter, server)
    await adapter.aclose()


@asynccontextmanager
async def rigged(**fields: Any) -> AsyncIterator[Rig]:
    async with gemini() as server, adapting(server, **fields) as rig:
        yield rig


async def test_the_second_request_creates_a_cache_that_the_third_one_names() -> None:
    async with rigged() as rig:
        for text in ("one", "two", "three"):
            answer, call = await rig.send(chat(SYSTEM, user(text), max_tokens=50))
            assert answer.body is not None
            assert json.loads(answer.body)["choices"][0]["message"]["content"] == text
            assert call.ignored.ignored == []
        assert rig.named == [None, None, "cachedContents/c0"]
        (created,) = rig.created
        assert created == {
            "model": f"models/{MODEL}", "systemInstruction": {"parts": [{"text": LONG}]}, "ttl": "300s",
        }  # fmt: skip
        assert rig.server.bodies[2] == {
            "cachedContent": "cachedContents/c0",
            "contents": [{"role": "user", "parts": [{"text": "three"}]}],
            "generationConfig": {"maxOutputTokens": 50},
        }
        assert answer.usage.cached_tokens == 1500
        assert answer.usage.prompt_tokens == 1502


async def test_vertex_has_caches_of_its_project_and_none_without_one() -> None:
    long = {**SYSTEM, "content": LONG * 2}
    async with rigged(**VERTEX) as rig:
        for text in ("one", "two", "three"):
            await rig.send(chat(long, user(text)))
        assert rig.named[2] == f"{PLACE}/cachedContents/c0"
        assert rig.created[0]["model"] == f"{PLACE}/publishers/google/models/{MODEL}"
    async with rigged(protocol={"name": "vertex"}) as rig:
        _, call = await rig.send(chat(long, user("one")))
        assert call.ignored.ignored == ["cache_control"]


async def test_tools_are_a_part_of_the_cache_and_another_choice_of_tools_is_another_cache() -> None:
    function = {"name": "look", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    tools = [{"type": "function", "function": {**function, "description": LONG}, **MARK}]
    async with rigged() as rig:
        for choice in ("auto", "auto", "auto", "required"):
            await rig.send(chat(user("call"), tools=tools, tool_choice=choice))
        assert rig.named == [None, None, "cachedContents/c0", None]
        assert set(rig.created[0]) == {"model", "tools", "toolConfig", "ttl"}
        assert "tools" not in rig.server.bodies[2]


async def test_a_conversation_gets_a_longer_cache_when_it_has_grown_by_half() -> None:
    messages = [SYSTEM]
    async with rigged() as rig:
        for number in range(8):
            messages = [*messages, user(f"{number} " + "words " * 300, **MARK)]
            await rig.send(chat(*messages))
            messages = [*messages[:-1], user(messages[-1]["content"]), assistant("yes")]
        sizes = [len(json.dumps(each)) for each in rig.created]
        assert 2 <= len(sizes) <= 4
        assert all(after > 1.4 * before for before, after in pairwise(sizes))
        assert all(name is not None for name in rig.named[2:])
        last = rig.server.bodies[-1]["contents"]
        assert len(last) < 15
        assert last[0]["role"] == "user"


async def test_a_loop_of_tools_is_cut_before_the_results() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    tools = [{"type": "function", "function": {"name": "look"}}]
    turn = [user(LONG), {"role": "assistant", "content": None, "tool_calls": [call]}]
    result = {"role": "tool", "tool_call_id": "c1", "content": "found", **MARK}
    async with rigged() as rig:
        for _ in range(3):
            await rig.send(chat(*turn, result, tools=tools))
        (rest,) = rig.server.bodies[2]["contents"]
        assert "functionResponse" in rest["parts"][0]
        assert [content["role"] for content in rig.created[0]["contents"]] == ["user", "model"]


async def test_a_document_before_a_question_in_one_message() -> None:
    content = [{"type": "text", "text": LONG, **HOUR}, {"type": "text", "text": "one"}]
    async with rigged() as rig:
        for _ in range(3):
            await rig.send(chat(user(content)))
        assert rig.created[0] | {"model": ""} == {
            "model": "", "contents": [{"role": "user", "parts": [{"text": LONG}]}], "ttl": "3600s",
        }  # fmt: skip
        assert rig.server.bodies[2]["contents"] == [{"role": "user", "parts": [{"text": "one"}]}]


@pytest.mark.parametrize("place", ["system", "tools", "first block", "top"])
async def test_the_marks_of_a_message(place: str) -> None:
    def marked(own: str) -> Object:
        return MARK if place == own else {}

    tool = {"name": "look", "input_schema": {"type": "object"}, "description": LONG, **marked("tools")}
    blocks = [{"type": "text", "text": LONG, **marked("first block")}, {"type": "text", "text": "one"}]
    turns = [{"role": "user", "content": blocks}, {"role": "assistant", "content": "yes"}]
    request = message(
        system=[{"type": "text", "text": LONG, **marked("system")}],
        tools=[tool],
        messages=[*turns, {"role": "user", "content": "two"}],
        **marked("top"),
    )
    async with rigged() as rig:
        for _ in range(3):
            _, call = await rig.send(request)
            assert call.ignored.ignored == []
        assert rig.named[2] is not None
        contents = rig.created[0].get("contents", [])
        parts = [len(content["parts"]) for content in contents]
        assert parts == {"system": [], "tools": [], "first block": [1], "top": [2, 1]}[place]


async def test_a_prompt_that_is_too_short_for_a_cache_is_reported() -> None:
    short = {**SYSTEM, "content": "Be kind."}
    async with rigged() as rig:
        _, call = await rig.send(chat(short, user("hi")))
        assert call.ignored.ignored == ["cache_control"]
        with pytest.raises(CallerError, match="cache_control"):
            await rig.send(chat(short, user("hi")), strict=True)
    async with rigged(model="gemma-3-27b-it") as rig:
        _, call = await rig.send(chat(SYSTEM, user("hi")))
        assert call.ignored.ignored == ["cache_control"]
    async with rigged(protocol={"name": "gemini", "cached_contents": False}) as rig:
        for _ in range(3):
            _, call = await rig.send(message(system=[{"type": "text", "text": LONG, **MARK}], messages=[user("hi")]))
            assert call.ignored.ignored == ["cache_control"]
        assert rig.created == []


async def test_a_request_without_marks_has_no_cache() -> None:
    async with rigged() as rig:
        for _ in range(3):
            _, call = await rig.send(chat({"role": "system", "content": LONG}, user("hi")))
        assert (rig.created, rig.named, call.ignored.ignored) == ([], [None] * 3, [])


@pytest.mark.parametrize("as_google", [False, True])
async def test_the_breakpoints_of_a_pool_apply_to_chats_and_to_google_s_own_clients(as_google: bool) -> None:
    turns = [{"role": "user", "parts": [{"text": "hi"}]}]
    body = {"systemInstruction": {"parts": [{"text": LONG}]}, "contents": turns}
    request = chat({"role": "system", "content": LONG}, user("hi"))
    if as_google:
        request = native.decode_content(json.dumps(body).encode(), "ours", stream=False)
    async with rigged(prompt_cache={"ttl": "1h"}) as rig:
        for _ in range(3):
            await rig.send(request)
        assert rig.created[0]["ttl"] == "3600s"
        assert rig.server.bodies[2] == {"cachedContent": "cachedContents/c0", "contents": turns}
        short = chat({"role": "system", "content": "Be kind."}, user("hi"))
        _, call = await rig.send(short, strict=True)
        assert call.ignored.ignored == []  # only a client's own marks are reported


@pytest.mark.parametrize(
    "lost",
    [
        (403, "PERMISSION_DENIED", "CachedContent not found (or permission denied)"),
        (404, "NOT_FOUND", "Not found: cached content metadata for 12."),
        (400, "INVALID_ARGUMENT", "Cache content 12 is expired."),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
async def test_a_request_with_a_lost_cache_is_sent_whole(lost: tuple[int, str, str], streams: bool) -> None:
    async with rigged() as rig:
        for text in ("one", "two", "three"):
            await rig.send(chat(SYSTEM, user(text)))
        rig.server.caches.entries.clear()
        rig.server.caches.lost = lost
        answer, _ = await rig.send(chat(SYSTEM, user("four"), stream=streams))
        assert answer.usage.prompt_tokens == 1502
        assert rig.named[2:] == ["cachedContents/c0", "cachedContents/c0", None]
        for text in ("five", "six"):
            await rig.send(chat(SYSTEM, user(text)))
        assert rig.named[-2:] == [None, "cachedContents/c1"]


async def test_a_cache_that_never_works_is_not_created_for_each_request() -> None:
    async with rigged() as rig:
        for _ in range(6):
            await rig.send(chat(SYSTEM, user("hi")))
            rig.server.caches.entries.clear()
        assert rig.named == [None, None, "cachedContents/c0", None, None, None, None]
        assert len(rig.created) == 1


async def test_another_failure_of_a_request_with_a_cache_is_the_answer() -> None:
    async with rigged() as rig:
        for text in ("one", "two"):
            await rig.send(chat(SYSTEM, user(text)))
        with pytest.raises(InferenceError):
            await rig.send(chat(SYSTEM, user("!long")))
        assert rig.named[2:] == ["cachedContents/c0"]
        await rig.send(chat(SYSTEM, user("four")))
        assert rig.named[-1] == "cachedContents/c0"


async def test_a_cache_serves_one_tenant_and_one_account() -> None:
    async with gemini() as server, adapting(server) as rig, adapting(server, key=OTHER_KEY) as other:
        for _ in range(3):
            await rig.send(chat(SYSTEM, user("hi")))
        await rig.send(chat(SYSTEM, user("hi")), tenant="globex")
        await other.send(chat(SYSTEM, user("hi")))
        assert rig.named == [None, None, "cachedContents/c0", None, None]


async def test_a_cache_lives_on_while_it_is_used_and_is_not_named_after_its_end() -> None:
    async with rigged() as rig:
        for _ in range(3):
            await rig.send(chat(SYSTEM, user("hi")))
        assert rig.server.caches.renewed == []
        for _ in range(3):
            await asyncio.sleep(200)
            await rig.send(chat(SYSTEM, user("hi")))
        assert rig.server.caches.renewed == ["cachedContents/c0"] * 3
        await asyncio.sleep(295)
        await rig.send(chat(SYSTEM, user("hi")))
        assert rig.named == [None, None, *["cachedContents/c0"] * 4, None]


async def test_a_renewal_of_a_lost_cache_forgets_it() -> None:
    async with rigged() as rig:
        for _ in range(2):
            await rig.send(chat(SYSTEM, user("hi")))
        rig.server.caches.entries.clear()
        await asyncio.sleep(200)
        await rig.send(chat(SYSTEM, user("hi")))
        assert rig.named[2:] == ["cachedContents/c0", None]


@pytest.mark.parametrize(
    ("failure", "rest"),
    [
        ((429, "RESOURCE_EXHAUSTED", "Limit exceeded: TotalCachedContentStorageTokensPerModelFreeTier"), 70),
        ((403, "PERMISSION_DENIED", "denied"), 610),
        ((503, "UNAVAILABLE", "overloaded"), 70),
    ],
)
async def test_creations_rest_after_a_failure(failure: tuple[int, str, str], rest: int) -> None:
    async with rigged() as rig:
        rig.server.caches.failure = failure
        for _ in range(2):
            await rig.send(chat(SYSTEM, user("hi")))
        rig.server.caches.failure = None
        _, call = await rig.send(chat(SYSTEM, user("hi")))
        assert (rig.created, call.ignored.ignored) == ([], ["cache_control"])
        _, call = await rig.send(chat(SYSTEM, user("hi")), strict=True)
        assert call.ignored.ignored == []
        await asyncio.sleep(rest)
        for _ in range(2):
            await rig.send(chat(SYSTEM, user("hi")))
        assert len(rig.created) == 1


async def test_the_minimum_in_a_refusal_replaces_that_of_the_table() -> None:
    async with rigged() as rig:
        wrong = "Cached content is too small. total_token_count=1500, min_total_token_count=4096"
        rig.server.caches.failure = (400, "INVALID_ARGUMENT", wrong)
        for _ in range(2):
            await rig.send(chat(SYSTEM, user("hi")))
        _, call = await rig.send(chat(SYSTEM, user("hi")))
        assert call.ignored.ignored == ["cache_control"]


async def test_an_answer_without_a_name_that_a_path_may_have_is_no_cache() -> None:
    for name in ("cachedContents/../models/x", "other/1", ""):
        assert cached_contents._name_of(json.dumps({"name": name}).encode()) is None
    assert cached_contents._name_of(b"[]") is None
    assert cached_contents._name_of(b'{"name":"cachedContents/a-1_b"}') == "cachedContents/a-1_b"


async def test_tables_are_bounded() -> None:
    async with rigged() as rig:
        caches = rig.adapter.caches
        assert caches is not None
        for number in range(cached_contents.MOST_SEEN + 5):
            cached_contents._put(caches._seen, b"%d" % number, 1.0, cached_contents.MOST_SEEN)
        assert len(caches._seen) == cached_contents.MOST_SEEN
        assert b"0" not in caches._seen
