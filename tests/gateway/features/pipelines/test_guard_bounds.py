"""The reservation of a pipeline with a guard covers every window of the longest answer."""

import asyncio
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.base import Answer
from adapters.call import Call
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelRequest
from adapters.types import Usage
from policies.limits.price import OUTPUT_ESTIMATE
from tests.gateway.features.pipelines.rigs import chunks, rig
from tests.support.gateways import Rig, chat

HARMLESS = "harmless"


class Judge(FakeAdapter):
    """A model of chats that finds everything harmless, and bills a token for each four characters of the window."""

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        answer = await super().call(request, call)
        (message,) = json.loads(bytes(request.codec.fields(request)["messages"]))
        answer.usage = Usage(-(-len(message["content"]) // 4), OUTPUT_ESTIMATE, exact=True)
        return answer


def judge() -> Judge:
    choice = {"index": 0, "message": {"role": "assistant", "content": HARMLESS}, "finish_reason": "stop"}
    return Judge(Script(chunks=(json.dumps({"choices": [choice], "usage": {}}).encode(),), latency=0.1))


def guarded(text: list[str], n: int, *, on: str, prices: Any = None, **sizes: int) -> Rig:
    choices = [{"index": i, "message": {"content": "".join(text)}, "finish_reason": "stop"} for i in range(n)]
    tokens = n * -(-len("".join(text)) // 4)
    body = json.dumps({"choices": choices, "usage": {}}).encode()
    model = FakeAdapter(Script(chunks=(body,), usage=Usage(3, tokens, exact=True)))
    guard = {"name": "guard", "guard": {"model": "b", "block_if": 'text == "bad"', "on": on, **sizes}}
    draft = {"name": "draft", "model": "a"}
    steps = [draft, guard] if on == "answer" else [guard, draft]
    return rig({"steps": steps}, {"a": model, "b": judge()}, limits={"tokens": "10000000/d"}, prices=prices)


async def reserved_and_charged(one: Rig, **fields: Any) -> tuple[float, float]:
    """Tokens that are reserved while the guard examines, and that are charged at the end."""
    request = chat("whole", **fields)
    task = asyncio.create_task(one.core.handle(one.principal, request, {}, record := one.record()))
    await asyncio.sleep(0.05)
    reserved = one.ledger.accounts["acme"].reserved_tokens
    await task
    one.assert_idle()
    assert record.usage is not None
    return reserved, record.usage.total_tokens


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    max_tokens=st.integers(1, 700),
    n=st.integers(1, 3),
    window=st.integers(1, 300),
    share=st.floats(0, 0.99),
    on=st.sampled_from(["answer", "request"]),
)
async def test_the_reservation_covers_every_window_of_the_longest_answer(
    max_tokens: int, n: int, window: int, share: float, on: str
) -> None:
    overlap = int(window * share)
    one = guarded(["word"] * max_tokens, n, on=on, window=window, overlap=overlap)
    message = [{"role": "user", "content": "word" * max_tokens if on == "request" else "go"}]
    reserved, charged = await reserved_and_charged(one, messages=message, max_tokens=max_tokens, n=n)
    windows = len(one.adapters["b"][0].calls)
    if on == "answer":
        assert windows == n * (1 + max(-(-(max_tokens - window) // (window - overlap)), 0))
    assert reserved >= charged
    assert charged >= windows * OUTPUT_ESTIMATE


async def test_a_stream_s_windows_are_reserved_and_billed() -> None:
    events = chunks(*["word"] * 40)
    model = FakeAdapter(Script(chunks=events, usage=Usage(3, 40, exact=True), gap=0.01))
    guard = {
        "name": "guard",
        "guard": {"model": "b", "block_if": 'text == "bad"', "on": "answer", "window": 10, "overlap": 5},
    }
    prices = {"a": "0.001 usd", "b": "0.01 usd"}
    steps = [{"name": "draft", "model": "a"}, guard]
    one = rig({"steps": steps}, {"a": model, "b": judge()}, limits={"tokens": "1000000/d"}, prices=prices)
    answer = await one.core.handle(one.principal, chat("whole", stream=True, max_tokens=40), {}, record := one.record())
    reserved = one.ledger.accounts["acme"].reserved_tokens
    assert [piece async for piece in answer]
    windows = len(one.adapters["b"][0].calls)
    assert windows == 7
    assert str(record.cost) == "0.071 usd"
    assert reserved >= windows * (10 + OUTPUT_ESTIMATE) + 43
