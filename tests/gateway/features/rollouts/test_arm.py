"""The counts of a rollout through the whole core, over scripted upstreams."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from adapters.errors import BackendError, CallerError, InferenceError
from adapters.fake import FakeAdapter, Script
from adapters.requests import ChatRequest, ModelQuery
from policies.rollouts.tally import ArmTally, ShareOrder
from tests.support.gateways import Rig, chat, config, infer

BACK_IF = [
    {"metric": "failures"},
    {"metric": "retries"},
    {"metric": "rejections"},
    {"metric": "first_byte", "slower_than": "2s"},
    {"metric": "total", "slower_than": "5s"},
]


def rig(
    v1: FakeAdapter, v2: FakeAdapter, route: dict[str, Any] | None = None, rollout: dict[str, Any] | None = None
) -> Rig:
    steps = [{"weight": "50%", "for": "10m"}]
    written = {"name": "r", "from": "v1", "to": "v2", "steps": steps, "back_if": BACK_IF, **(rollout or {})}
    return Rig(
        config(
            pools=[
                {"name": "v1", "endpoints": ["http://127.0.0.1:9"], "breaker": {"failures": 1000}},
                {"name": "v2", "endpoints": ["http://127.0.0.1:9"], "breaker": {"failures": 1000}},
            ],
            models=[{"name": "chat", "routes": [{"rollout": written, "retry": {"attempts": 1}, **(route or {})}]}],
        ),
        {"v1": [v1], "v2": [v2]},
    )


def share(one: Rig, value: float) -> None:
    live = one.rollouts.by_name["r"]
    one.rollouts.apply([ShareOrder("r", live.fingerprint, 1, (1 - value, value), 0)])


async def ask(one: Rig, **fields: Any) -> None:
    with suppress(InferenceError):
        answer = await one.core.handle(one.principal, chat(**fields), {}, one.record())
        async for _ in answer:
            pass


def tally(one: Rig) -> ArmTally:
    total = ArmTally()
    for each in one.rollouts.take():
        total.add(each.tally)
    return total


async def test_all_requests_are_the_old_arm_s_until_an_order_comes() -> None:
    one = rig(v1 := FakeAdapter(), v2 := FakeAdapter())
    for _ in range(20):
        await ask(one)
    assert (len(v1.calls), len(v2.calls)) == (20, 0)
    share(one, 1.0)
    await ask(one)
    assert len(v2.calls) == 1
    assert one.log.records[-1].arm == "v2"
    one.assert_idle()


async def test_requests_and_failures_count_for_their_arm() -> None:
    one = rig(FakeAdapter(), FakeAdapter(Script(fault=BackendError("x"))))
    share(one, 0.5)
    for _ in range(200):
        await ask(one)
    counted = tally(one)
    assert sum(counted.assigned) == sum(counted.ended) == 200
    assert counted.events == {"failures": [0, counted.ended[1]]}
    assert 60 < counted.ended[1] < 140


async def test_a_failure_that_a_fallback_answers_is_the_arm_s() -> None:
    """The client notices nothing, and the rollout must."""
    one = rig(FakeAdapter(), FakeAdapter(Script(fault=BackendError("x"))), {"fallback": ["v1"]})
    share(one, 1.0)
    await ask(one)
    assert one.log.records[-1].status == 200
    assert tally(one).events == {"failures": [0, 1]}


async def test_a_failure_of_the_fallback_is_not_the_arm_s_twice() -> None:
    broken = Script(fault=BackendError("x"))
    one = rig(FakeAdapter(broken), FakeAdapter(broken), {"fallback": ["v1"]})
    share(one, 1.0)
    await ask(one)
    assert tally(one).events == {"failures": [0, 1]}
    share(one, 0.0)
    await ask(one)
    assert tally(one).events == {"failures": [1, 0]}


async def test_a_retry_that_helps_is_no_failure_but_a_retry() -> None:
    one = rig(FakeAdapter(), FakeAdapter(Script(fault=BackendError("x")), Script()), {"retry": {"attempts": 2}})
    share(one, 1.0)
    await ask(one)
    assert tally(one).events == {"retries": [0, 1]}


async def test_an_error_of_the_client_is_a_rejection_and_no_failure() -> None:
    one = rig(FakeAdapter(), FakeAdapter(Script(fault=CallerError("x"))))
    share(one, 1.0)
    await ask(one)
    assert tally(one).events == {"rejections": [0, 1]}


async def test_a_request_that_a_limit_refuses_has_no_end_at_an_arm() -> None:
    one = rig(FakeAdapter(), FakeAdapter())
    share(one, 1.0)
    await ask(one, model="unknown")
    assert tally(one) == ArmTally()


async def test_a_stream_counts_at_its_end() -> None:
    broken = Script(fault=BackendError("x"), fault_after=1, gap=0.5)
    one = rig(FakeAdapter(), FakeAdapter(broken))
    share(one, 1.0)
    answer = await one.core.handle(one.principal, chat(stream=True), {}, one.record())
    assert tally(one).ended == []
    with pytest.raises(BackendError):
        [chunk async for chunk in answer]
    counted = tally(one)
    assert (counted.ended, counted.events) == ([0, 1], {"failures": [0, 1]})
    one.assert_idle()


async def test_slow_answers_are_events_even_if_the_client_leaves() -> None:
    one = rig(FakeAdapter(), FakeAdapter(Script(latency=3.0)))
    share(one, 1.0)
    await ask(one)
    assert tally(one).events == {"first_byte>2s": [0, 1]}
    for patience, events in ((1.0, {}), (2.5, {"first_byte>2s": [0, 1]})):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(patience):
                await one.core.handle(one.principal, chat(), {}, one.record())
        counted = tally(one)
        assert (counted.ended, counted.events) == ([], events)
    one.assert_idle()


async def test_a_stored_answer_ends_at_no_arm() -> None:
    one = rig(FakeAdapter(), v2 := FakeAdapter(), {"cache": {"only": "all"}})
    share(one, 1.0)
    for _ in range(5):
        await ask(one)
    assert len(v2.calls) == 1
    assert (tally(one).assigned, len(v2.calls)) == ([0, 5], 1)


async def test_each_arm_rewrites_requests_and_sets_its_version() -> None:
    one = rig(
        v1 := FakeAdapter(),
        v2 := FakeAdapter(),
        {"rewrite": {"force": {"top_p": 0.5}}},
        {"from": {"pool": "v1"}, "to": {"pool": "v2", "version": "2", "rewrite": {"force": {"temperature": 0}}}},
    )
    for value in (0.0, 1.0):
        share(one, value)
        await one.core.handle(one.principal, infer(version="7"), {}, one.record())
        await ask(one)
    assert [call.request.version for call in v1.calls] == ["7", ""]
    assert [call.request.version for call in v2.calls] == ["2", "2"]
    sent = [dict(calls[1].request.codec.fields(calls[1].request)) for calls in (v1.calls, v2.calls)]
    assert ("top_p" in sent[0], "temperature" in sent[0]) == (True, False)
    assert ("top_p" in sent[1], "temperature" in sent[1]) == (False, True)
    assert one.log.records[-1].arm == "v2:2"


async def test_a_query_of_the_gateway_s_own_is_routed_and_not_counted() -> None:
    one = rig(FakeAdapter(), v2 := FakeAdapter())
    share(one, 1.0)
    await one.core.look_up(one.principal, ModelQuery(model="chat"), {})
    assert len(v2.calls) == 1
    assert tally(one) == ArmTally()


async def test_a_request_that_may_wait_elsewhere_first_counts_once() -> None:
    """`when_full: fallback`: the first attempt does not wait, and its refusal is no failure."""
    slow = Script(latency=1.0)
    one = rig(FakeAdapter(slow), FakeAdapter(slow), {"fallback": ["v1"], "when_full": "fallback"})
    share(one, 1.0)
    await asyncio.gather(*(ask(one) for _ in range(5)))
    counted = tally(one)
    assert (counted.assigned, counted.ended, counted.events) == ([0, 5], [0, 5], {})
    one.assert_idle()


async def test_an_arm_is_another_model_with_its_own_routes() -> None:
    v1, v2 = FakeAdapter(), FakeAdapter(Script(fault=BackendError("x")))
    steps = [{"weight": "50%", "for": "10m"}]
    rollout = {"name": "r", "from": "v1", "to": {"model": "next"}, "steps": steps}
    one = Rig(
        config(
            pools=[
                {"name": name, "endpoints": ["http://127.0.0.1:9"], "breaker": {"failures": 9}} for name in ("v1", "v2")
            ],
            models=[
                {"name": "chat", "routes": [{"rollout": rollout}]},
                {"name": "next", "routes": [{"to": "v2", "rewrite": {"force": {"temperature": 0}}}]},
            ],
        ),
        {"v1": [v1], "v2": [v2]},
    )
    share(one, 1.0)
    await ask(one)
    assert v2.calls[0].request.model == "next"
    assert tally(one).events == {"failures": [0, 1]}
    share(one, 0.0)
    await ask(one)
    assert one.log.records[-1].status == 200
    assert tally(one).ended == [1, 0]
    one.assert_idle()


async def test_an_arm_is_another_prompt_template() -> None:
    """The template is a step of the arm's pipeline. The pool is the same, and a failure counts for the template."""
    server = FakeAdapter()
    steps = [{"weight": "50%", "for": "10m"}]
    rollout = {"name": "r", "from": "v1", "to": {"model": "short"}, "steps": steps}
    short = [
        {"name": "style", "template": "Answer in one word."},
        {"name": "answer", "model": "plain", "in": {"system": "style.text"}},
    ]
    one = Rig(
        config(
            pools=[{"name": "v1", "endpoints": ["http://127.0.0.1:9"], "breaker": {"failures": 9}}],
            models=[
                {"name": "chat", "routes": [{"rollout": rollout}]},
                {"name": "plain", "routes": [{"to": "v1"}]},
                {"name": "short", "pipeline": {"steps": short}},
            ],
        ),
        {"v1": [server]},
    )
    for weight, system in ((0.0, None), (1.0, "Answer in one word.")):
        share(one, weight)
        await ask(one)
        request = server.calls[-1].request
        assert isinstance(request, ChatRequest)
        first, *_ = json.loads(bytes(request.codec.fields(request)["messages"]))
        assert (first["content"] if first["role"] == "system" else None) == system
        assert tally(one).ended == ([0, 1] if weight else [1, 0])
    one.assert_idle()


async def test_a_hedge_that_wins_is_the_assigned_arm_s_one_answer() -> None:
    """The first endpoint of `to` never answers. The hedge is no event, and the time is the client's."""
    slow, quick = FakeAdapter(Script(latency=100.0)), FakeAdapter(Script(latency=1.5))
    pool = {"endpoints": ["http://127.0.0.1:9", "http://127.0.0.1:10"], "balance": {"by": "round_robin"}}
    steps = [{"weight": "50%", "for": "10m"}]
    rollout = {"name": "r", "from": "v1", "to": "v2", "steps": steps, "back_if": BACK_IF}
    route = {"rollout": rollout, "retry": {"attempts": 1}, "hedge": {"after": "1600ms", "budget": "100%"}}
    one = Rig(
        config(
            pools=[{"name": "v1", "endpoints": ["http://127.0.0.1:8"]}, {"name": "v2", **pool}],
            models=[{"name": "chat", "routes": [route]}],
        ),
        {"v1": [FakeAdapter()], "v2": [slow, quick]},
    )
    share(one, 1.0)
    for _ in range(4):
        await ask(one)
    counted = tally(one)
    assert len(slow.calls) == 2
    assert (counted.assigned, counted.ended) == ([0, 4], [0, 4])
    assert counted.events == {"first_byte>2s": [0, 2]}
    one.assert_idle()


async def test_an_arm_without_its_servers_fails_and_the_fallback_answers() -> None:
    """A pool that discovery has emptied is as bad as one that fails: each of its requests is an event."""
    one = rig(FakeAdapter(), v2 := FakeAdapter(), {"fallback": ["v1"]})
    share(one, 1.0)
    one.pools["v2"].endpoints = []
    for _ in range(10):
        await ask(one)
    assert {record.status for record in one.log.records} == {200}
    counted = tally(one)
    assert (v2.calls, counted.ended, counted.events) == ([], [0, 10], {"failures": [0, 10]})
    one.assert_idle()
