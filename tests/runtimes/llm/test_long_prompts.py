"""Prompts far beyond the context, at every path that encodes texts: others do not wait for their refusal."""

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapters import offload
from adapters.errors import CapacityError, ContextTooLong
from adapters.offload.jobs import CodecJob
from adapters.offload.worker_queue import WorkerQueue
from runtimes.llm.api import encoding_thread
from runtimes.llm.api.encoding_thread import INLINE, EncodingThread
from runtimes.llm.text.chat_template import ChatTemplate
from runtimes.llm.text.tokenizer import Tokenizer
from tests.runtimes.llm.server_fixtures import MODEL, Running, post, serving
from tests.support.byte_tokenizer import CHATML
from tests.support.pace import slowness
from tests.support.turns import Turns

CONTEXT = 8192
LONGEST_TURN = 0.25
"""Seconds of CPU time: far above the milliseconds that a turn takes, far below the seconds that it took."""
TEXTS = {
    "angle brackets": "<" * 200_000,
    "control tokens": "<|im_start|>" * 16_000,
    "words": "hello " * 70_000,
    "no place to cut": "中文字" * 40_000,
    "digits": "1" * 100_000,
    "white space": "\n" * 200_000,
}


def bodies(text: str) -> dict[str, dict[str, Any]]:
    tool = {"type": "function", "function": {"name": "f", "description": text}}
    return {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": text}]},
        "/v1/chat/completions?tools": {"messages": [{"role": "user", "content": "x"}], "tools": [tool]},
        "/v1/completions": {"prompt": text},
        "/v1/responses": {"input": text},
        "/v1/embeddings": {"input": text},
        "/tokenize": {"prompt": text},
    }


@pytest.fixture
async def running(tokenizer: Tokenizer) -> AsyncIterator[Running]:
    async with serving("x", tokenizer=tokenizer, max_body=4 << 20, context=CONTEXT) as running:
        yield running


def status_of(url: str, path: str, body: bytes) -> int:
    """The status of a request, sent from a thread."""
    request = urllib.request.Request(url + path.partition("?")[0], body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            response.read()
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.read()
        return error.code


@pytest.mark.parametrize("kind", TEXTS)
async def test_a_prompt_beyond_the_context_holds_no_turn_of_the_loop(running: Running, kind: str) -> None:
    written = {path: json.dumps(body | {"model": MODEL}).encode() for path, body in bodies(TEXTS[kind]).items()}
    for path, body in written.items():
        with Turns() as turns:
            statuses = await asyncio.gather(*[asyncio.to_thread(status_of, running.url, path, body) for _ in range(2)])
        assert statuses == ([200, 200] if path == "/tokenize" else [400, 400]), path
        assert turns.longest < LONGEST_TURN * slowness(), path
    status, _, _ = await post(running, "/v1/completions", {"model": MODEL, "prompt": "x", "max_tokens": 1})
    assert status == 200


async def test_a_conversation_of_more_turns_than_the_context_has_tokens_is_refused(running: Running) -> None:
    messages = [{"role": "user", "content": ""}] * 100_000
    body = json.dumps({"model": MODEL, "messages": messages}).encode()
    with Turns() as turns:
        assert await asyncio.to_thread(status_of, running.url, "/v1/chat/completions", body) == 400
    assert turns.longest < 2 * LONGEST_TURN * slowness()


async def test_a_refusal_names_the_prompt_and_the_context(running: Running) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello " * 20_000}]}
    status, _, body_of_refusal = await post(running, "/v1/chat/completions", body)
    assert (status, body_of_refusal["error"]["code"], body_of_refusal["error"]["param"]) == (
        400,
        ContextTooLong.code,
        "messages",
    )
    assert str(CONTEXT) in body_of_refusal["error"]["message"]


async def test_large_texts_wait_for_each_other_and_a_flood_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding_thread, "MAX_WAITING", 1)
    thread, gate, loop = EncodingThread(), threading.Event(), threading.get_ident()
    first = asyncio.create_task(thread.run(INLINE + 1, gate.wait))
    second = asyncio.create_task(thread.run(INLINE + 1, threading.get_ident))
    await asyncio.sleep(0)
    with pytest.raises(CapacityError):
        await thread.run(INLINE + 1, threading.get_ident)
    assert await thread.run(INLINE, threading.get_ident) == loop
    gate.set()
    assert await first
    assert await second != loop
    assert await thread.run(INLINE + 1, threading.get_ident) != loop


async def test_tenants_take_turns_and_one_that_leaves_gives_its_own_away() -> None:
    thread, gate = EncodingThread(), threading.Event()
    order: list[str] = []

    def started(tenant: str) -> asyncio.Task[None]:
        async def encoded() -> None:
            offload.TENANT.set(tenant)
            await thread.run(INLINE + 1, lambda: order.append(tenant) if gate.wait() else None)

        return asyncio.create_task(encoded())

    tasks = [started(tenant) for tenant in ("acme", "acme", "gone", "acme", "acme", "beta", "beta")]
    await asyncio.sleep(0)
    tasks[2].cancel()
    gate.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["acme", "acme", "beta", "acme", "beta", "acme"]
    assert await thread.run(INLINE + 1, lambda: 7) == 7


async def test_the_header_of_the_gateway_names_the_tenant(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    tenants: list[str] = []

    async def run(lane: WorkerQueue, job: CodecJob) -> Any:
        tenants.append(job.tenant)
        return job.call.function(*job.call.args, **job.call.kwargs)

    monkeypatch.setattr(WorkerQueue, "run", run)
    body = {"model": MODEL, "messages": [{"role": "user", "content": ""}] * 10_000}
    for headers in ({"x-headrace-tenant": "acme"}, {}):
        await post(running, "/v1/chat/completions", body, **headers)
    assert tenants == ["acme", ""]


async def test_many_small_texts_take_many_turns() -> None:
    thread, turns = EncodingThread(), 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    for _ in range(64):
        await thread.run(INLINE // 2, lambda: None)
    task.cancel()
    assert turns >= 30


async def test_many_prompts_and_many_tokens_hold_no_turn_of_the_loop(running: Running) -> None:
    prompts = {"model": MODEL, "prompt": ["1" * INLINE] * 128, "max_tokens": 1}
    tokens = {"model": MODEL, "tokens": [100] * 200_000}
    for path, body in (("/v1/completions", prompts), ("/detokenize", tokens)):
        with Turns() as turns:
            await asyncio.to_thread(status_of, running.url, path, json.dumps(body).encode())
        assert turns.longest < LONGEST_TURN * slowness(), path


async def test_templates_are_rendered_by_several_threads_at_a_time(tokenizer: Tokenizer) -> None:
    template = ChatTemplate(CHATML, tokenizer)
    messages = [[{"role": "user", "content": f"{'x ' * 500}{i}"}] * 50 for i in range(8)]
    expected = [template.encode(one) for one in messages]
    assert await asyncio.gather(*[asyncio.to_thread(template.encode, one) for one in messages]) == expected
