"""An engine that is full, loading, failing, or shutting down."""

import asyncio
import json
from typing import Any

import aiohttp
import openai
import pytest

from runtimes.llm.engine.async_engine import Engine
from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.memory import OutOfMemory
from runtimes.llm.sequence import Sampled, SamplingParams, StepBatch
from runtimes.llm.text.tokenizer import Detokenizer
from tests.runtimes.llm.server_fixtures import HI, MODEL, Parrot, get, post, serving, until_idle
from tests.support.byte_tokenizer import byte_tokenizer
from tests.support.conditions import until

CHAT: dict[str, Any] = {"model": MODEL, "messages": HI}
COMPLETION: dict[str, Any] = {"model": MODEL, "prompt": "a"}


async def test_a_full_queue_is_429_and_leaves_nothing_behind() -> None:
    async with serving(max_queue=2, max_num_seqs=1) as running:
        running.parrot.gate.clear()
        pair = COMPLETION | {"n": 2}
        calls = [asyncio.create_task(post(running, "/v1/completions", pair)) for _ in range(3)]
        refused, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        status, headers, answer = refused.pop().result()
        assert (status, answer["error"]["type"]) == (429, "rate_limit_error")
        assert int(headers["retry-after"]) >= 1
        running.parrot.gate.set()
        await asyncio.wait(calls)
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


async def test_an_engine_that_fails_in_mid_stream_sends_an_error_without_done() -> None:
    async with serving(fails_after=3) as running:
        body = CHAT | {"stream": True}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{running.url}/v1/chat/completions", json=body) as response,
        ):
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
            await until(lambda: running.engine.stats().running + running.engine.stats().waiting >= 4)
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


class Cramped(Parrot):
    """A parrot that has no memory for more than `room` tokens in a step, and none at all in step `fails_at`."""

    room = 100
    fails_at = 0

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        sampled = super().run(batch)
        self.fails_at -= 1
        if batch.num_tokens > self.room or self.fails_at == 0:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.")
        return sampled


LONG = COMPLETION | {"prompt": "a" * 120}


async def test_a_step_that_runs_out_of_memory_is_a_503_and_the_engine_goes_on() -> None:
    cramped = Cramped(byte_tokenizer().encode("Hello"))
    async with serving(prefix_cache=True, runner=cramped) as running:
        status, headers, answer = await post(running, "/v1/completions", LONG)
        assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "out_of_memory", "1")
        assert "max_num_batched_tokens" in answer["error"]["message"]
        assert (await post(running, "/v1/completions", COMPLETION))[0] == 200
        assert (await get(running, "/health"))[0] == 200
        cramped.room = 1000
        assert (await post(running, "/v1/completions", LONG))[0] == 200
        assert running.engine.stats().cached_prompt_tokens == 0  # the cache holds nothing that was not computed


async def test_a_stream_with_a_step_out_of_memory_ends_with_that_error() -> None:
    cramped = Cramped(byte_tokenizer().encode("Hello"))
    cramped.fails_at = 4
    async with serving(runner=cramped) as running:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{running.url}/v1/completions", json=COMPLETION | {"stream": True}) as response,
        ):
            *events, last, empty = (await response.content.read()).split(b"\n\n")
        texts = [json.loads(one.removeprefix(b"data: "))["choices"][0]["text"] for one in events]
        assert "".join(texts) == "Hel"
        assert (json.loads(last.removeprefix(b"data: "))["error"]["code"], empty) == ("out_of_memory", b"")
        assert (await post(running, "/v1/completions", COMPLETION))[0] == 200


def test_all_rows_of_a_step_that_runs_out_of_memory_fail_and_no_others() -> None:
    cramped = Cramped([7, 8, 9])
    cramped.fails_at = 2
    bounds = SchedulerConfig(max_model_len=64, max_num_seqs=2, max_num_batched_tokens=64, max_queue=9)
    scheduler = Scheduler(bounds, BlockManager(num_blocks=9, block_size=16))
    engine = Engine(scheduler, cramped, vocab_size=258, eos_token_ids=frozenset({257}))
    first, second, third = (engine.add([number] * 20, SamplingParams(max_tokens=3)) for number in (1, 2, 3))
    assert {one: output.token_id for one, output in engine.step().items()} == {first: 7, second: 7}
    ended = engine.step()
    assert {one: type(output.error) for one, output in ended.items()} == {first: OutOfMemory, second: OutOfMemory}
    assert [output.token_id for _ in range(3) for output in engine.step().values()] == [7, 8, 9]
    assert third not in ended
    engine.check_idle()


async def test_an_answer_with_a_failed_text_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token of "!" fails; a neighbour in the same steps has none."""
    push = Detokenizer.push

    def failing(self: Detokenizer, token_id: int) -> str:
        if (text := push(self, token_id)) == "!":
            raise ValueError("this token has no text")
        return text

    monkeypatch.setattr(Detokenizer, "push", failing)
    async with serving("Hello! and so on") as running:
        running.parrot.continues = True
        neighbour = asyncio.ensure_future(post(running, "/v1/completions", COMPLETION | {"prompt": "Hello!"}))
        status, _, answer = await post(running, "/v1/completions", COMPLETION)
        assert status == 500
        assert "tokens could not be decoded" in answer["error"]["message"]
        assert (await neighbour)[2]["choices"][0]["text"] == " and so on"
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{running.url}/v1/completions", json=COMPLETION | {"stream": True}) as response,
        ):
            events = (await response.read()).decode()
        assert '"text":"H"' in events
        assert "tokens could not be decoded" in events
        assert "[DONE]" not in events
        await until_idle(running.engine)
