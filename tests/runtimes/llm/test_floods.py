"""A flood of one tenant through HTTP and the real engine: the latency of another tenant, in steps."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from runtimes.llm.sequence import Sampled, StepBatch
from tests.runtimes.llm.server_fixtures import MODEL, Running, post, serving
from tests.support.conditions import until

PLACES, CONNECTIONS, CHOICES, ANSWER = 32, 4, 128, 40
OWN_ANSWER = 10


class Steps:
    """A runner that counts its steps and generates the same token without an end. Each step lasts some turns of the
    event loop, as a model's does: so HTTP costs few steps."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        asyncio.run_coroutine_threadsafe(turns(), self._loop).result()
        self.count += 1
        return {chunk.sequence_id: Sampled(65) for chunk in batch.chunks if chunk.samples}


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def flood(running: Running) -> AsyncIterator[list[int]]:
    """Tenant a keeps CONNECTIONS requests of CHOICES answers in flight; yields the status of each that has ended."""
    statuses: list[int] = []

    async def connection() -> None:
        body = {"model": MODEL, "prompt": "flood", "n": CHOICES, "max_tokens": ANSWER}
        while True:
            status, _, _ = await post(running, "/v1/completions", body, **{"x-headrace-tenant": "a"})
            statuses.append(status)

    tasks = [asyncio.create_task(connection()) for _ in range(CONNECTIONS)]
    try:
        await until(lambda: running.engine.stats().waiting >= CHOICES)
        yield statuses
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def latencies(running: Running, steps: Steps, count: int) -> list[int]:
    """Steps that each of tenant b's requests takes, one after the other."""
    body = {"model": MODEL, "prompt": "quiet", "max_tokens": OWN_ANSWER}
    step_counts = []
    for _ in range(count):
        before = steps.count
        status, _, answer = await post(running, "/v1/completions", body, **{"x-headrace-tenant": "b"})
        assert (status, answer["usage"]["completion_tokens"]) == (200, OWN_ANSWER)
        step_counts.append(steps.count - before)
    return step_counts


async def test_a_flood_of_answers_delays_another_tenant_by_one_answer_at_most() -> None:
    """Without fair shares each request waits for the flood's queue: 512 answers in 32 places are 640 steps."""
    steps = Steps()
    async with serving(runner=steps, max_queue=1024, max_num_seqs=PLACES) as running, flood(running) as statuses:
        measured = await latencies(running, steps, 10)
        assert set(statuses) <= {200}
    # The longest answer that runs, its own, and steps while HTTP is read and written.
    assert max(measured) <= ANSWER + OWN_ANSWER + 20
