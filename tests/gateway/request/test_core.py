import asyncio
import gc
import itertools
import weakref
from copy import copy
from dataclasses import replace
from typing import Any, cast

import pytest
from msgspec import structs
from prometheus_client import generate_latest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import (
    BackendError,
    CallerError,
    ClientGone,
    ContextTooLong,
    DeadlineError,
    LimitExceeded,
    NotFound,
    TransportError,
)
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelRequest
from adapters.types import Usage
from gateway.auth.keys import Principal
from gateway.auth.scope import Scope
from policies.limits.limits import Rated
from tests.support.deterministic import START
from tests.support.gateways import Rig, chat, config, explain, infer


def rig(*fakes: FakeAdapter, limits: dict[str, Any] | None = None, models: list[str] | None = None) -> Rig:
    tenant = {"name": "acme", "models": models or ["*"], "limits": limits or {}}
    return Rig(config(tenants=[tenant]), {"main": list(fakes) or [FakeAdapter()]})


async def test_the_truth_is_charged_at_the_end() -> None:
    one = rig(limits={"tokens": "1000/min"})
    answer = await one.core.handle(one.principal, chat(max_tokens=500), {}, record := one.record())
    assert answer.body == b"data: {}\n\ndata: [DONE]\n\n"
    assert one.left("tokens") == 1000 - 5
    assert (record.model, record.pool, record.endpoint, record.status) == ("chat", "main", "main/0", 200)
    assert one.log.records == [record]
    one.assert_idle()


async def test_each_tenant_s_prompts_have_a_salt_of_their_own() -> None:
    fake = FakeAdapter()
    one = Rig(config(tenants=[{"name": name, "models": ["*"]} for name in ("acme", "beta")]), {"main": [fake]})
    for tenant in ("acme", "beta", "acme"):
        await one.core.handle(Principal(tenant, "k"), chat(), {"x-headrace-salt": "mine"}, one.record())
    first, second, third = (played.call.salt for played in fake.calls)
    assert first == third != second
    assert "acme" not in first
    one.assert_idle()


async def test_an_estimate_is_held_during_the_answer() -> None:
    one = rig(FakeAdapter(Script(gap=1.0)), limits={"tokens": "1000/min"})
    answer = await one.core.handle(one.principal, chat(stream=True, max_tokens=500), {}, one.record())
    assert one.ledger.accounts["acme"].reserved_tokens > 500
    with pytest.raises(LimitExceeded):
        await one.core.handle(one.principal, chat(max_tokens=500), {}, one.record())
    assert [piece async for piece in answer]
    one.assert_idle()


async def test_a_client_that_disconnects_pays_for_the_delivered_part() -> None:
    chunks = tuple(b"data: %d\n\n" % i for i in range(10))
    one = rig(FakeAdapter(Script(chunks=chunks, gap=1.0)), limits={"tokens": "1000/min"})
    answer = await one.core.handle(one.principal, chat(stream=True), {}, record := one.record())
    for _ in range(4):
        await answer.__anext__()
    await answer.aclose()
    assert record.usage == Usage(prompt_tokens=0, completion_tokens=4)
    assert (record.status, type(record.error)) == (499, ClientGone)
    assert one.adapters["main"][0].calls[0].end == "cancelled"
    one.assert_idle()


async def test_a_client_that_leaves_before_the_first_chunk_pays_for_its_prompt() -> None:
    one = rig(FakeAdapter(Script(latency=60.0)), limits={"tokens": "1000/d"})
    request = chat()
    task = asyncio.create_task(one.core.handle(one.principal, request, {}, one.record()))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    remaining = one.left("tokens")
    assert remaining == pytest.approx(1000 - request.prompt_tokens, abs=0.1)
    assert one.adapters["main"][0].calls[0].end == "cancelled"
    one.assert_idle()


async def test_a_failure_before_the_first_chunk_costs_nothing() -> None:
    one = rig(FakeAdapter(Script(fault=CallerError("bad"))), limits={"tokens": "1000/min"})
    with pytest.raises(CallerError):
        await one.core.handle(one.principal, chat(), {}, one.record())
    assert one.left("tokens") == 1000
    assert one.log.records == []  # the front logs the refusal, with the status that it sends
    one.assert_idle()


async def test_a_prompt_that_is_refused_as_too_long_counts_against_the_limits_and_has_no_price() -> None:
    one = rig(FakeAdapter(Script(fault=ContextTooLong("too long"))), limits={"tokens": "1000/min"})
    request = chat()
    with pytest.raises(ContextTooLong):
        await one.core.handle(one.principal, request, {}, record := one.record())
    assert one.left("tokens") == 1000 - request.prompt_tokens
    assert (record.cost, record.usage) == (None, None)
    one.assert_idle()


async def test_a_break_in_mid_stream_charges_the_streamed_part() -> None:
    one = rig(FakeAdapter(Script(fault=TransportError("x"), fault_after=1)), limits={"tokens": "100/min"})
    answer = await one.core.handle(one.principal, chat(stream=True, max_tokens=10), {}, record := one.record())
    await answer.__anext__()
    with pytest.raises(TransportError):
        await answer.__anext__()
    assert one.left("tokens") == 99
    assert (record.status, type(record.error)) == (200, TransportError)
    assert len(one.log.records) == 1
    one.assert_idle()


@pytest.mark.parametrize(("allowed", "model"), [(["*"], "nothing"), (["other-*"], "chat")])
async def test_unknown_and_not_allowed_are_one_answer(allowed: list[str], model: str) -> None:
    one = rig(models=allowed)
    with pytest.raises(NotFound) as refused:
        await one.core.handle(one.principal, chat(model), {}, record := one.record())
    expected = f"The model `{model}` does not exist or you may not use it."
    assert (refused.value.message, refused.value.param) == (expected, "model")
    assert record.model == ""  # what a client makes up is no metric label
    one.assert_idle()


async def test_a_dead_endpoint_is_covered_by_another_and_by_the_fallback() -> None:
    dead = [FakeAdapter(Script(fault=TransportError("x"))) for _ in range(2)]
    spare = FakeAdapter()
    configuration = config(
        pools=[{"name": n, "endpoints": ["http://127.0.0.1:9"]} for n in ("main", "spare")],
        models=[{"name": "chat", "routes": [{"to": "main", "fallback": ["spare"], "retry": {"attempts": 2}}]}],
    )
    one = Rig(configuration, {"main": dead, "spare": [spare]})
    answer = await one.core.handle(one.principal, chat(), {}, record := one.record())
    assert answer.pool == record.pool == "spare"
    assert [len(fake.calls) for fake in dead] == [1, 1]  # the second try went to the other endpoint
    assert len(record.trace.attempts) == 3
    one.assert_idle()


async def test_tokens_are_charged_once_for_any_endpoint() -> None:
    """A fallback and a token limit go together: what failed costs nothing, and what answered is charged."""
    configuration = config(
        pools=[{"name": n, "endpoints": ["http://127.0.0.1:9"]} for n in ("main", "spare")],
        models=[{"name": "chat", "routes": [{"to": "main", "fallback": ["spare"]}]}],
        tenants=[{"name": "acme", "models": ["*"], "limits": {"tokens": "1000/d"}}],
    )
    dead, spare = FakeAdapter(Script(fault=TransportError("x"))), FakeAdapter()
    one = Rig(configuration, {"main": [dead], "spare": [spare]})
    for charged in (5, 10):
        await one.core.handle(one.principal, chat(max_tokens=100), {}, record := one.record())
        assert record.pool == "spare"
        assert one.left("tokens") == pytest.approx(1000 - charged, abs=0.1)
    one.assert_idle()


SESSIONS: list[dict[str, Any]] = [
    {"by": "hash", "key": "user"},
    {"by": "hash", "key": "key"},
    {"by": "hash", "key": "tenant"},
    {"by": "hash", "key": "header:X-Session"},
    {"by": "prefix_affinity"},
]


@pytest.mark.parametrize("balance", SESSIONS, ids=str)
async def test_a_session_stays_at_its_endpoint(balance: dict[str, Any]) -> None:
    """All that a picker may go by reaches it: identity, headers, user and prompt."""
    pools = [{"name": "main", "endpoints": [f"http://127.0.0.1:{port}" for port in range(1, 9)], "balance": balance}]
    fakes = [FakeAdapter() for _ in range(8)]
    one = Rig(config(pools=pools), {"main": fakes})
    for turn in range(1, 30):
        messages = [{"role": "user", "content": "x" * 2000}] * turn
        await one.core.handle(one.principal, chat(user="u", messages=messages), {"x-session": "s"}, one.record())
    repeated = sum(a == b for a, b in itertools.pairwise(record.endpoint for record in one.log.records))
    assert repeated >= 24
    one.assert_idle()


PRICED = [
    {"name": "chat", "routes": [{"to": "main"}], "price": {"prompt": "10000 usd/1M", "completion": "20000 usd/1M"}}
]


async def test_money_is_held_by_the_estimate_and_charged_by_the_truth() -> None:
    tenant = {"name": "acme", "models": ["*"], "limits": {"spend": "10 usd/month"}}
    one = Rig(config(tenants=[tenant], models=PRICED), {"main": [FakeAdapter(Script(gap=1.0))]})
    answer = await one.core.handle(one.principal, chat(stream=True, max_tokens=400), {}, record := one.record())
    with pytest.raises(LimitExceeded, match="10 usd/month"):
        await one.core.handle(one.principal, chat(max_tokens=400), {}, one.record())
    assert [piece async for piece in answer]
    assert str(record.cost) == "0.07 usd"  # 3 tokens and 2
    assert one.ledger.accounts["acme"].always[0].remaining(0.0, 0.0) == {"spend": 9.93}
    text = generate_latest(one.metrics.registry).decode()
    assert 'headrace_spend_usd_total{model="chat",tenant="acme"} 0.07' in text
    one.assert_idle()


async def test_a_broken_stream_costs_its_streamed_part_and_a_failed_one_nothing() -> None:
    tenant = {"name": "acme", "models": ["*"], "limits": [{"spend": "10 usd/day", "per": "key"}]}
    broken = Script(fault=TransportError("x"), fault_after=1)
    fake = FakeAdapter(broken, Script(fault=CallerError("x")))
    one = Rig(config(tenants=[tenant], models=PRICED), {"main": [fake]})
    answer = await one.core.handle(one.principal, chat(stream=True, max_tokens=10), {}, record := one.record())
    with pytest.raises(TransportError):
        [piece async for piece in answer]
    assert str(record.cost) == "0.02 usd"  # one token
    with pytest.raises(CallerError):
        await one.core.handle(one.principal, chat(max_tokens=10), {}, failed := one.record())
    assert failed.cost is None
    assert one.ledger.accounts["acme"].spent == {(one.key.id, "usd"): 2 * 10**10}
    one.assert_idle()


async def test_a_limit_in_shadow_is_counted_and_logged_and_refuses_nothing() -> None:
    one = rig(limits={"requests": "1/min", "per": "user", "enforce": "shadow"})
    for _ in range(3):
        answer = await one.core.handle(one.principal, chat(user="someone"), {}, one.record())
        assert answer.status == 200
    assert [line.shadow_limits for line in one.log.lines] == [None, ["requests per user"], ["requests per user"]]
    text = generate_latest(one.metrics.registry).decode()
    assert 'headrace_limit_shadow_refusals_total{per="user",tenant="acme",unit="requests"} 2.0' in text
    assert "someone" not in text
    one.assert_idle()


async def test_scopes_leave_less_than_the_tenant_may_do() -> None:
    routes = [{"name": "gold", "to": "main", "when": {"stream": True}}, {"to": "main"}]
    models = [{"name": "chat", "routes": routes}, {"name": "other", "routes": [{"to": "main"}]}]
    one = Rig(config(models=models), {"main": [FakeAdapter()]})

    async def refused(**fields: Any) -> str:
        with pytest.raises(NotFound) as caught:
            await one.core.handle(one.principal, chat(**fields), {}, one.record())
        return str(caught.value)

    unknown = await refused(model="nothing")
    one.hold(scope=Scope(models=["ch*"]))
    await one.core.handle(one.principal, chat(), {}, one.record())
    assert await refused(model="other") == unknown.replace("nothing", "other")
    one.hold(scope=Scope(routes=["gold"]))
    answer = await one.core.handle(one.principal, chat(stream=True), {}, one.record())
    assert [piece async for piece in answer]
    # The route that matches decides, and no scope leads to another one.
    assert await refused() == unknown.replace("nothing", "chat")
    one.assert_idle()


async def test_a_failure_is_recorded_with_the_last_failed_pool() -> None:
    pools = [{"name": n, "endpoints": ["http://127.0.0.1:9"]} for n in ("main", "spare")]
    models = [{"name": "chat", "routes": [{"to": "main", "fallback": ["spare"], "retry": {"attempts": 1}}]}]
    broken = [FakeAdapter(Script(fault=BackendError("down"), fault_after=0)) for _ in pools]
    one = Rig(config(pools=pools, models=models), {"main": broken[:1], "spare": broken[1:]})
    with pytest.raises(BackendError):
        await one.core.handle(one.principal, chat(), {}, record := one.record())
    assert (record.pool, record.endpoint) == ("spare", "")
    with pytest.raises(NotFound):
        await one.core.handle(one.principal, chat(model="unknown"), {}, record := one.record())
    assert record.pool == ""


@pytest.mark.parametrize(
    ("reported", "charged", "is_believed"),
    [
        (Usage(2**20 + 90, 2**20 + 8, exact=True, bytes=8), (2**20 + 90, 2**20 + 8), True),
        (Usage(2**20 + 101, 1, exact=True, bytes=8), (50, 2), False),
        (Usage(1, 2**20 + 9, exact=True, bytes=8), (50, 2), False),
        (Usage(2**31 - 1, 2**31 - 1, exact=True, cached_tokens=9, reasoning_tokens=9), (50, 0), False),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_impossible_number_of_tokens_is_not_charged(
    reported: Usage, charged: tuple[int, int], is_believed: bool, stream: bool
) -> None:
    one = rig(FakeAdapter(Script(usage=copy(reported))))
    request = structs.replace(chat(stream=stream), size=100, prompt_tokens=50)
    answer = await one.core.handle(one.principal, request, {}, record := one.record())
    if stream:
        assert [piece async for piece in answer]
    usage = record.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.exact) == (*charged, is_believed)
    assert record.trace.events == (() if is_believed else (("implausible_usage", "main"),))
    assert is_believed or not usage.cached_tokens + usage.reasoning_tokens
    one.assert_idle()


UNITS: list[tuple[dict[str, Any], Usage, str]] = [
    ({"rows": "10/h"}, Usage(rows=8), "rows"),
    ({"device_ms": "100/h"}, Usage(device_ms=50.0), "device_ms"),
    ({"bytes": "1KiB/h"}, Usage(bytes=400), "bytes"),
]


@pytest.mark.parametrize(("limits", "usage", "unit"), UNITS, ids=[unit for _, _, unit in UNITS])
async def test_each_unit_is_charged_with_the_usage_of_the_answer(
    limits: dict[str, Any], usage: Usage, unit: str
) -> None:
    tenant = {"name": "acme", "models": ["*"], "limits": limits}
    one = Rig(config(tenants=[tenant]), {"main": [FakeAdapter(Script(usage=usage))]})

    async def send() -> None:
        request = structs.replace(chat(), size=150)
        await one.core.handle(one.principal, request, {}, one.record())

    for _ in range(2):  # what an answer costs is known at its end: a debt
        await send()
    with pytest.raises(LimitExceeded, match=f"its limit of {unit}: ") as refused:
        await send()
    assert refused.value.limit == unit
    assert one.left(cast(Rated, unit)) == 0
    one.assert_idle()


async def test_device_time_is_reserved_once_it_was_reported() -> None:
    """Else a burst would see an allowance that the requests before it have used up."""
    tenant = {"name": "acme", "models": ["*"], "limits": {"device_ms": "100/h"}}
    script = Script(latency=1.0, usage=Usage(rows=2, device_ms=20.0))
    one = Rig(config(tenants=[tenant]), {"main": [FakeAdapter(script)]})
    await one.core.handle(one.principal, infer(rows=2), {}, one.record())
    tries = [one.core.handle(one.principal, infer(rows=4), {}, one.record()) for _ in range(4)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert [isinstance(result, LimitExceeded) for result in results] == [False, False, True, True]
    one.assert_idle()


async def test_an_explanation_does_not_reserve_its_time_for_predictions() -> None:
    tenant = {"name": "acme", "models": ["*"], "limits": {"device_ms": "20000/h"}}
    scripts = [Script(usage=Usage(rows=rows, device_ms=spent)) for rows, spent in ((100, 100.0), (1, 9000.0))]
    one = Rig(config(tenants=[tenant]), {"main": [FakeAdapter(*scripts, scripts[0])]})
    for request in (infer(rows=100), explain(rows=1), infer(rows=100)):
        await one.core.handle(one.principal, request, {}, one.record())
    with pytest.raises(LimitExceeded, match="its limit of device_ms: "):
        await one.core.handle(one.principal, explain(rows=2), {}, one.record())
    one.assert_idle()


async def test_a_clients_own_time_limit_counts_where_it_is_the_shorter() -> None:
    one = Rig(config(), {"main": [FakeAdapter(Script(latency=5.0))]})
    with pytest.raises(DeadlineError):
        await one.core.handle(one.principal, infer(timeout=2.0), {}, one.record())
    assert asyncio.get_running_loop().time() == pytest.approx(START + 2.0, abs=0.1)
    one.assert_idle()


async def test_a_models_limit_is_for_all_tenants_together() -> None:
    models = [{"name": "chat", "routes": [{"to": "main"}], "limits": [{"requests": "2/h"}, {"concurrency": 5}]}]
    tenants = [{"name": name, "models": ["*"]} for name in ("acme", "other")]
    one = Rig(config(models=models, tenants=tenants), {"main": [FakeAdapter()]})
    for name in ("acme", "other"):
        await one.core.handle(replace(one.principal, tenant=name), chat(), {}, one.record())
    message = "The model chat is over its limit of requests: 2/h for all tenants together"
    with pytest.raises(LimitExceeded, match=message):
        await one.core.handle(one.principal, chat(), {}, one.record())
    one.assert_idle()


class _Body:
    """The part of an answer that an adapter has read."""


class _Failing(FakeAdapter):
    def __init__(self) -> None:
        super().__init__()
        self.read: list[weakref.ref[_Body]] = []

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        body = _Body()
        self.read.append(weakref.ref(body))
        await asyncio.sleep(0)
        raise BackendError("The upstream failed.")


async def test_the_partial_body_of_a_failed_answer_is_freed_without_the_collector() -> None:
    fake = _Failing()
    one = rig(fake)
    gc.disable()
    try:
        record = one.record()
        try:
            await one.core.handle(one.principal, chat(), {}, record)
        except BackendError as error:
            one.core.telemetry.end(record, error, 502, one.core.clock())
        assert isinstance(record.error, BackendError)
        assert [body() for body in fake.read] == [None] * len(fake.read) != []
    finally:
        gc.enable()
