import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, CapacityError, ClientGone, DeadlineError, InferenceError, TransportError
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelRequest
from adapters.types import Usage
from config.schema.config import Config
from gateway.auth.keys import Principal
from gateway.request.snapshot import build
from gateway.traffic.coalesce import AHEAD
from gateway.traffic.metrics.caches import CacheGauges
from gateway.traffic.plan_state import PlanState
from policies.cache import OVERHEAD
from tests.support.gateways import Rig, chat, config

CHUNKS = (*(b'data: {"choices":[{"delta":{"content":"%d"}}]}\n\n' % i for i in range(4)), b"data: [DONE]\n\n")
STREAM = Script(chunks=CHUNKS, latency=1.0, gap=1.0)
LIMITS = {"tokens": "100k/d", "requests": "1000/d"}


def configuration(cache: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **changes: Any) -> Config:
    route = {"to": "main", "cache": cache or {}, "retry": {"attempts": 1}}
    tenants = [{"name": name, "models": ["*"], "limits": limits or LIMITS} for name in ("acme", "other")]
    return config(models=[{"name": "chat", "routes": [route]}], tenants=tenants, **changes)


def rig(*scripts: Script, **kwargs: Any) -> Rig:
    fake = FakeAdapter(*(scripts or (Script(chunks=(b"answer",)),)))
    return Rig(configuration(**kwargs), {"main": [fake]})


class Exchange:
    """One request: its record, and the received pieces of its answer."""

    def __init__(self, one: Rig) -> None:
        self.one = one
        self.record = one.record()
        self.pieces: list[bytes] = []
        self.error: BaseException | None = None
        self.answer: Answer

    async def begin(
        self, headers: Mapping[str, str] | None = None, principal: Principal | None = None, **fields: Any
    ) -> "Exchange":
        fields = {"temperature": 0, **fields}
        caller = principal or self.one.principal
        self.record.tenant, self.record.key = caller.tenant, caller.key_id
        self.answer = await self.one.core.handle(caller, chat(**fields), headers or {}, self.record)
        return self

    async def end(self) -> "Exchange":
        if self.answer.body is not None:
            self.pieces.append(self.answer.body)
            return self
        try:
            async for piece in self.answer:
                self.pieces.append(piece)
        except InferenceError as error:
            self.error = error
        return self

    @property
    def result(self) -> str:
        return dict(self.answer.headers)["x-headrace-cache"]

    @property
    def text(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def tokens(self) -> int:
        return self.record.usage.total_tokens if self.record.usage is not None else 0


async def send(one: Rig, **kwargs: Any) -> Exchange:
    return await (await Exchange(one).begin(**kwargs)).end()


def calls(one: Rig) -> int:
    return sum(len(fake.calls) for fakes in one.adapters.values() for fake in fakes)


# ── the cache ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [False, True])
async def test_the_same_again_costs_a_request_and_no_tokens(stream: bool) -> None:
    one = rig(STREAM)
    first = await send(one, stream=stream)
    await asyncio.sleep(30)
    before = one.left("tokens"), one.left("requests")
    again = await send(one, stream=stream, user="somebody else")
    assert (first.result, again.result) == ("miss", "hit")
    assert again.text == first.text == b"".join(CHUNKS)
    assert again.answer.content_type == first.answer.content_type
    assert dict(again.answer.headers)["age"] == "30"
    assert calls(one) == 1
    assert (first.tokens, again.tokens) == (5, 0)
    assert again.record.usage == Usage(exact=True)
    assert one.left("tokens") == pytest.approx(before[0], abs=0.01)
    assert one.left("requests") == pytest.approx(before[1] - 1, abs=0.01)
    assert (again.record.pool, again.record.trace.attempts) == ("", [])
    assert [line.cache for line in one.log.lines] == ["miss", "hit"]
    text = generate_latest(one.metrics.registry).decode()
    assert 'headrace_cache_requests_total{model="chat",result="hit"} 1.0' in text
    assert 'headrace_cache_requests_total{model="chat",result="miss"} 1.0' in text
    one.assert_idle()


class Ignoring(FakeAdapter):
    """A server that leaves out a field of each request."""

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        call.ignored.add(["verbosity"])
        return await super().call(request, call)


@pytest.mark.parametrize("together", [False, True])
async def test_a_stored_or_shared_answer_lists_the_fields_that_its_server_ignored(together: bool) -> None:
    one = Rig(configuration(), {"main": [Ignoring(STREAM)]})
    if together:
        both = list(await asyncio.gather(send(one, stream=True), send(one, stream=True)))
    else:
        both = [await send(one, stream=True), await send(one, stream=True)]
    assert [list(exchange.record.ignored) for exchange in both] == [["verbosity"]] * 2
    assert calls(one) == 1


async def test_streams_and_whole_answers_are_cached_separately() -> None:
    one = rig(STREAM)
    assert [(await send(one, stream=stream)).result for stream in (True, False, True, False)] == [
        "miss", "miss", "hit", "hit"
    ]  # fmt: skip
    assert calls(one) == 2


async def test_an_answer_has_its_time() -> None:
    one = rig(cache={"ttl": "10s"})
    await send(one)
    await asyncio.sleep(9.5)
    assert (await send(one)).result == "hit"
    await asyncio.sleep(0.5)
    assert (await send(one)).result == "miss"


@pytest.mark.parametrize(
    ("script", "fields"),
    [
        (Script(fault=BackendError("x")), {}),
        (Script(chunks=CHUNKS, fault=TransportError("x"), fault_after=3), {"stream": True}),
    ],
)
async def test_neither_a_failure_nor_its_partial_answer_is_cached(script: Script, fields: dict[str, Any]) -> None:
    one = rig(script, STREAM)
    with pytest.raises((BackendError, TransportError)):
        raise (await send(one, **fields)).error or AssertionError
    assert (await send(one, **fields)).result == "miss"
    assert (await send(one, **fields)).result == "hit"
    assert calls(one) == 2
    one.assert_idle()


async def test_an_abandoned_stream_is_not_cached() -> None:
    one = rig(STREAM)
    exchange = await Exchange(one).begin(stream=True)
    await exchange.answer.__anext__()
    await exchange.answer.aclose()
    assert exchange.record.status == 499
    assert exchange.tokens >= 1
    one.assert_idle()
    assert (await send(one, stream=True)).result == "miss"


async def test_tenants_share_nothing_and_keys_where_they_may() -> None:
    for share, result in (("tenant", "hit"), ("key", "miss")):
        one = rig(cache={"share": share})
        await send(one)
        assert (await send(one, principal=Principal("acme", "k2"))).result == result
        assert (await send(one, principal=Principal("other", one.principal.key_id))).result == "miss"
        assert (await send(one)).result == "hit"


@pytest.mark.parametrize(
    ("only", "fields", "stored"),
    [
        ("deterministic", {"temperature": 0.7}, False),
        ("deterministic", {"temperature": None}, False),
        ("deterministic", {"temperature": 0.7, "seed": 1}, True),
        ("all", {"temperature": 0.7}, True),
    ],
)
async def test_sampled_answers_are_stored_only_where_configured(
    only: str, fields: dict[str, Any], stored: bool
) -> None:
    one = rig(STREAM, cache={"only": only})
    both = [(await send(one, **fields)).result for _ in range(2)]
    assert both == (["miss", "hit"] if stored else ["bypass", "bypass"])
    await asyncio.gather(*(send(one, stop="x", **fields) for _ in range(3)))
    assert calls(one) == (2 if stored else 5)  # and only those are shared at the same time
    one.assert_idle()


async def test_cache_headers_of_clients_apply() -> None:
    one = rig(STREAM)
    assert (await send(one, headers={"cache-control": "no-store"})).result == "bypass"
    assert (await send(one)).result == "miss"  # the cache stored nothing
    await asyncio.sleep(20)
    assert (await send(one, headers={"cache-control": "max-age=30"})).result == "hit"
    assert (await send(one, headers={"cache-control": "max-age=10"})).result == "miss"
    assert (await send(one, headers={"cache-control": "max-age=10"})).result == "hit"  # the newer one replaced it
    await asyncio.sleep(20)
    assert (await send(one, headers={"cache-control": "no-cache"})).result == "miss"
    assert dict((await send(one)).answer.headers)["age"] == "0"


async def test_an_answer_of_the_fallback_is_not_cached_for_the_pool() -> None:
    pools = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "spare")]
    route = {"to": "main", "fallback": ["spare"], "cache": {}, "retry": {"attempts": 1}}
    main = FakeAdapter(Script(fault=BackendError("x")), Script(chunks=(b"main",)))
    one = Rig(
        config(pools=pools, models=[{"name": "chat", "routes": [route]}]),
        {"main": [main], "spare": [FakeAdapter(Script(chunks=(b"spare",)))]},
    )
    assert [((answer := await send(one)).text, answer.result) for _ in range(3)] == [
        (b"spare", "miss"), (b"main", "miss"), (b"main", "hit")
    ]  # fmt: skip


async def test_cached_answers_survive_a_reload_unless_their_model_changed() -> None:
    one, plan_state = rig(), PlanState()

    def reload(written: Config) -> None:
        before = one.core.snapshot
        one.core.snapshot = build(
            written, before.credentials.keys, before.pools, one.core.rng, one.core.clock, plan_state=plan_state
        )

    reload(configuration())
    await send(one)
    reload(configuration(drain="5s"))
    assert (await send(one)).result == "hit"
    reload(configuration(cache={"ttl": "1h"}))
    assert (await send(one)).result == "hit"
    reload(configuration(pools=[{"name": "main", "endpoints": ["http://127.0.0.1:9"], "model": "larger"}]))
    assert (await send(one)).result == "miss"
    reload(configuration())
    assert (await send(one)).result == "hit"
    reload(config())
    reload(configuration())
    assert (await send(one)).result == "miss"  # a route that did not cache in between has forgotten


async def test_an_answer_that_is_too_large_is_forwarded_and_not_cached() -> None:
    chunks = tuple(b"data: %s\n\n" % (b"x" * 500) for _ in range(40))
    one = rig(Script(chunks=chunks), cache={"max_bytes": "64KiB"})
    for _ in range(2):
        exchange = await send(one, stream=True)
        assert (exchange.result, exchange.text) == ("miss", b"".join(chunks))
    one.assert_idle()


async def test_the_contents_of_the_cache_are_reported() -> None:
    one, plan_state = rig(STREAM), PlanState()
    before = one.core.snapshot
    one.core.snapshot = build(
        configuration(), before.credentials.keys, before.pools, one.core.rng, one.core.clock, plan_state=plan_state
    )
    one.metrics.watch(CacheGauges(plan_state.shelves))
    exchange = await Exchange(one).begin(stream=True)
    assert 'headrace_cache_calls{model="chat"} 1.0' in generate_latest(one.metrics.registry).decode()
    await exchange.end()
    text = generate_latest(one.metrics.registry).decode()
    assert 'headrace_cache_calls{model="chat"} 0.0' in text
    assert 'headrace_cache_answers{model="chat"} 1.0' in text
    assert f'headrace_cache_bytes{{model="chat"}} {len(exchange.text) + OVERHEAD}.0' in text


# ── coalescing ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [False, True])
async def test_the_same_at_the_same_time_is_one_call(stream: bool) -> None:
    one = rig(STREAM)

    async def later(seconds: float) -> Exchange:
        await asyncio.sleep(seconds)
        return await send(one, stream=stream)

    exchange = await asyncio.gather(*(later(seconds) for seconds in (0.0, 0.5, 0.9)), *([later(2.5)] if stream else []))
    assert calls(one) == 1
    assert {each.text for each in exchange} == {b"".join(CHUNKS)}
    assert [each.result for each in exchange] == ["miss"] + ["coalesced"] * (len(exchange) - 1)
    assert [each.tokens for each in exchange] == [5] + [0] * (len(exchange) - 1)
    assert {each.record.endpoint for each in exchange} == {"main/0"}
    assert [len(each.record.trace.attempts) for each in exchange] == [1] + [0] * (len(exchange) - 1)
    assert exchange[-1].record.trace.upstream_seconds > 0 or stream
    one.assert_idle()


async def test_a_shared_call_continues_for_the_remaining_client_which_is_charged() -> None:
    one = rig(STREAM)
    leader = await Exchange(one).begin(stream=True)
    follower = await Exchange(one).begin(stream=True)
    await leader.answer.__anext__()
    await leader.answer.aclose()
    assert leader.tokens == 0
    await follower.end()
    assert follower.text == b"".join(CHUNKS)
    assert (follower.error, follower.tokens) == (None, 5)
    assert one.adapters["main"][0].calls[0].end == "whole"
    assert (await send(one, stream=True)).result == "hit"
    one.assert_idle()


async def test_the_last_client_to_disconnect_ends_the_call_and_is_charged() -> None:
    one = rig(STREAM)
    both = [await Exchange(one).begin(stream=True) for _ in range(2)]
    await both[1].answer.__anext__()
    await asyncio.sleep(1.5)
    await both[0].answer.aclose()
    assert one.adapters["main"][0].in_flight == 1
    await both[1].answer.aclose()
    one.assert_idle()
    assert one.adapters["main"][0].calls[0].end == "cancelled"
    assert [each.tokens for each in both] == [0, 2]
    assert [each.record.status for each in both] == [499, 499]
    assert (await send(one, stream=True)).result == "miss"


@pytest.mark.parametrize("leaving", [[0, 1], [1, 0]])
async def test_all_leave_before_it_begins_and_one_pays_for_the_prompt(leaving: Sequence[int]) -> None:
    one = rig(Script(latency=50.0))
    exchange = [Exchange(one) for _ in range(2)]
    tasks = [asyncio.create_task(each.begin()) for each in exchange]
    await asyncio.sleep(1)
    for index in leaving:
        tasks[index].cancel()
        await asyncio.sleep(1)
    for task in tasks:
        with pytest.raises(asyncio.CancelledError):
            await task
    assert calls(one) == 1
    assert sorted(each.tokens > 0 for each in exchange) == [False, True]
    assert exchange[leaving[-1]].tokens > 0
    one.assert_idle()
    assert (await send(one)).result == "miss"


async def test_a_client_that_leaves_before_its_call_was_even_begun_leaves_nothing() -> None:
    one = rig(STREAM)
    task = asyncio.create_task(Exchange(one).begin())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await send(one)).result == "miss"
    one.assert_idle()


@pytest.mark.parametrize("fault_after", [0, 2])
async def test_a_failure_is_returned_to_all_sharing_clients(fault_after: int) -> None:
    fault = CapacityError("full", retry_after=3.0)
    one = rig(Script(chunks=CHUNKS, latency=1.0, gap=1.0, fault=fault, fault_after=fault_after), STREAM)
    exchange = [Exchange(one) for _ in range(3)]
    ends: list[Any] = await asyncio.gather(*(each.begin(stream=True) for each in exchange), return_exceptions=True)
    if fault_after:
        await asyncio.gather(*(each.end() for each in exchange))
        ends = [each.error for each in exchange]
        assert {each.text for each in exchange} == {b"".join(CHUNKS[:2])}
        assert sum(each.tokens for each in exchange) == 2
    assert ends == [fault] * 3
    assert calls(one) == 1
    one.assert_idle()


async def test_a_slow_reader_delays_no_other() -> None:
    chunks = tuple(b"data: %d\n\n" % i for i in range(50))
    one = rig(Script(chunks=chunks))
    slow = await Exchange(one).begin(stream=True)
    quick = await Exchange(one).begin(stream=True)
    await slow.answer.__anext__()
    await quick.end()
    assert quick.text == b"".join(chunks)
    await asyncio.sleep(100)
    await slow.end()
    assert slow.error is None
    one.assert_idle()


async def test_a_client_behind_the_buffer_gets_an_error() -> None:
    chunks = tuple(b"data: %d %s\n\n" % (i, b"x" * 1000) for i in range(100))
    one = rig(Script(chunks=chunks, gap=0.1), cache={"max_bytes": "128KiB"})
    slow = await Exchange(one).begin(stream=True)
    quick = await Exchange(one).begin(stream=True)
    assert await slow.answer.__anext__() == chunks[0]
    await quick.end()
    assert quick.text == b"".join(chunks)
    await slow.end()
    assert isinstance(slow.error, CapacityError)
    assert slow.error.code == "slow_reader"
    late = await send(one, stream=True)
    assert late.result == "miss"
    one.assert_idle()


async def test_the_upstream_is_not_read_far_ahead_of_the_clients() -> None:
    """All read slowly: the upstream waits, as it would for one of them alone."""
    one = rig(Script(chunks=tuple(b"x" * 1024 for _ in range(2000))))
    exchange = [await Exchange(one).begin(stream=True) for _ in range(2)]
    await exchange[0].answer.__anext__()
    await asyncio.sleep(10)
    stream = one.adapters["main"][0].calls[0]
    assert stream.end == "running"
    assert one.endpoints["main"][0].in_flight == 1
    piece = await exchange[0].answer.__anext__()
    assert len(piece) <= AHEAD + 2048
    await asyncio.gather(*(each.end() for each in exchange))
    one.assert_idle()


async def test_a_call_near_its_deadline_is_not_joined() -> None:
    one = Rig(
        config(models=[{"name": "chat", "routes": [{"to": "main", "cache": {}, "timeout": {"total": "10s"}}]}]),
        {"main": [FakeAdapter(Script(latency=20.0), Script(chunks=(b"second",)))]},
    )
    first = asyncio.create_task(send(one))
    await asyncio.sleep(6)
    late = await send(one)
    assert (late.result, late.text) == ("miss", b"second")
    with pytest.raises(DeadlineError):
        await first
    assert (await send(one)).result == "hit"  # the late answer, stored although the first call was still in progress
    one.assert_idle()


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(0, 3))
async def test_a_storm_of_clients_that_come_and_go(seed: int, faults: int) -> None:
    """One call at a time; every client that stays gets the whole answer or its failure; each call is paid for once."""

    async def client(one: Rig, dice: random.Random, exchanges: list[Exchange]) -> None:
        await asyncio.sleep(dice.choice([0.0, 0.5, 1.0, 2.0, 3.0, dice.random() * 12]))
        exchange = Exchange(one)
        try:
            async with asyncio.timeout(dice.choice([None, None, 0.0, 0.5, 1.0, 2.0, dice.random() * 8])):
                await exchange.begin(stream=True)
                exchanges.append(exchange)
                try:
                    while True:
                        exchange.pieces.append(await exchange.answer.__anext__())
                        await asyncio.sleep(dice.choice([0.0, 0.0, 1.0]))
                finally:
                    await exchange.answer.aclose()
        except (StopAsyncIteration, TimeoutError, InferenceError, RuntimeError):
            pass

    dice = random.Random(seed)
    broken = Script(CHUNKS, 1.0, 1.0, TransportError("x"), dice.randint(0, 4))
    one = rig(*[dice.choice([STREAM, broken]) for _ in range(faults)], STREAM, cache={"ttl": "0s"})
    exchanges: list[Exchange] = []
    watch = asyncio.create_task(_at_most_one(one))
    await asyncio.gather(*(client(one, dice, exchanges) for _ in range(12)))
    watch.cancel()
    one.assert_idle()
    whole = b"".join(CHUNKS)
    for exchange in exchanges:
        assert exchange.record.ended
        assert whole.startswith(exchange.text)
        assert exchange.record.error is not None or exchange.text == whole
        assert isinstance(exchange.record.error, ClientGone | TransportError | None)
    begun = [call for fake in one.adapters["main"] for call in fake.calls]
    wholes = sum(call.end == "whole" for call in begun)
    assert sum(exchange.tokens == 5 for exchange in exchanges) >= wholes
    assert sum(exchange.tokens > 0 for exchange in exchanges) <= len(begun)  # nothing twice


async def _at_most_one(one: Rig) -> None:
    while True:
        assert one.adapters["main"][0].in_flight <= 1
        await asyncio.sleep(0.25)
