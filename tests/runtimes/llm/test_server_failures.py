"""An engine that is full, loading, failing, or no longer wanted."""

import asyncio
import json
from typing import Any

import aiohttp
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.runtimes.llm.server_fixtures import MODEL, get, post, serving, until_idle

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
CHAT: dict[str, Any] = {"model": MODEL, "messages": HI}
COMPLETION: dict[str, Any] = {"model": MODEL, "prompt": "a"}


async def test_a_full_queue_is_429_and_leaves_nothing_behind() -> None:
    async with serving(max_queue=2, max_num_seqs=1) as running:
        running.parrot.gate.clear()
        status, headers, answer = await post(running, "/v1/completions", COMPLETION | {"n": 8})
        assert (status, answer["error"]["type"]) == (429, "rate_limit_error")
        assert int(headers["retry-after"]) >= 1
        running.parrot.gate.set()
        await until_idle(running.engine)
        assert (await post(running, "/v1/completions", COMPLETION))[0] == 200


async def test_until_the_model_is_loaded() -> None:
    async with serving() as running:
        running.app.model = None
        for path in ("/health", "/v1/models"):
            status, text = await get(running, path)
            assert (status, "loading" in text) == (503, True)
        status, headers, answer = await post(running, "/v1/completions", COMPLETION)
        assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "model_loading", "1")
        assert (await get(running, "/metrics"))[0] == 200


async def test_an_engine_that_fails_before_the_first_token_is_a_503() -> None:
    async with serving(fails_after=0) as running:
        status, _, answer = await post(running, "/v1/chat/completions", CHAT | {"stream": True})
        assert (status, answer["error"]["type"]) == (503, "server_error")
        assert (await get(running, "/health")) == (503, '{"status":"dead"}')
        assert (await post(running, "/v1/chat/completions", CHAT))[0] == 503


async def test_an_engine_that_fails_in_the_middle_says_so_and_not_done() -> None:
    async with serving(fails_after=3) as running:
        body = CHAT | {"stream": True}
        async with aiohttp.ClientSession() as session:
            response = await session.post(f"{running.url}/v1/chat/completions", json=body)
            *_, last, empty = (await response.read()).split(b"\n\n")
        assert (response.status, empty) == (200, b"")
        assert json.loads(last.removeprefix(b"data: "))["error"]["type"] == "server_error"
    async with serving(fails_after=3) as running:
        stream = await running.client.chat.completions.create(model=MODEL, messages=HI, stream=True)
        assert [(await anext(stream)).choices[0].delta.content for _ in range(4)] == ["", "H", "e", "l"]
        with pytest.raises(openai.APIError, match="engine"):
            await anext(stream)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_the_engine(stream: bool) -> None:
    async with serving("x" * 1000) as running:
        running.parrot.gate.clear()
        body = CHAT | {"stream": stream, "n": 4}
        async with aiohttp.ClientSession() as session:
            leaving = asyncio.ensure_future(session.post(f"{running.url}/v1/chat/completions", json=body))
            async with asyncio.timeout(10):
                while running.engine.stats().running + running.engine.stats().waiting < 4:
                    await asyncio.sleep(0.005)
            leaving.cancel()
        # The step in which they were is still under way.
        await until_idle(running.engine)
        running.parrot.gate.set()
        assert running.engine.stats().generated_tokens <= 4


async def test_a_client_that_leaves_in_the_middle_of_a_stream_frees_the_engine() -> None:
    async with serving("x" * 1000) as running:
        stream = await running.client.chat.completions.create(model=MODEL, messages=HI, stream=True, n=2)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        running.parrot.gate.clear()
        await stream.close()
        await until_idle(running.engine)
        running.parrot.gate.set()
        _, text = await get(running, "/metrics")
        assert 'headrace_llm_request_finished_total{finished_reason="abort"} 2.0' in text
