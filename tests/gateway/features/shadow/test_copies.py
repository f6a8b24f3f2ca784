"""Copies behind the client's answer: on their own connections, within bounds, and on nobody's bill."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.errors import BackendError, CapacityError, InferenceError, TransportError, UpstreamTimeout
from adapters.fake import Script
from adapters.requests import AppRequest
from adapters.wire.oip.bodies import HttpPayload
from policies.sequential.quantiles import quantile
from policies.shadowing.pairs import PairTally
from tests.support.gateways import chat, infer
from tests.support.shadows import ShadowRig, script, shadowing


async def test_a_copy_is_sent_when_the_answer_has_ended() -> None:
    rig = ShadowRig(shadowing(), copied_next=script("hello "))
    answer = await rig.core.handle(rig.principal, chat(stream=True), {}, rig.record())
    await anext(answer)
    await asyncio.sleep(0)
    assert rig.copied["next"].calls == []
    async for _ in answer:
        assert rig.copied["next"].calls == []
    await rig.until_compared()
    (copy,) = rig.copied["next"].calls
    assert (copy.call.id, copy.call.priority, copy.call.tenant) == ("req-1-shadow", "low", "acme")
    assert rig.live_fakes["next"].calls == []
    rig.assert_idle()


async def test_equal_and_differing_answers_are_counted() -> None:
    rig = ShadowRig(shadowing(), copied_next=script("Hello"))
    await rig.compare(chat())
    assert rig.shadow.copies == {"equal": 1}
    rig = ShadowRig(shadowing(), copied_next=script("good-bye"))
    assert b"hello" in await rig.compare(chat())
    assert rig.shadow.copies == {"differing": 1}
    tally = rig.shadow.take()
    assert tally is not None
    assert (tally.compared, tally.differing, tally.fields) == (1, 1, {"text": 1})
    assert rig.shadow.tokens == {"prompt": 3, "completion": 2}


async def test_the_noise_arm_repeats_the_request() -> None:
    rig = ShadowRig(shadowing(noise="100%"), copied_main=script("another"), copied_next=script("hello"))
    await rig.compare(chat())
    assert [len(rig.copied[name].calls) for name in ("main", "next")] == [1, 1]
    tally = rig.shadow.take()
    assert tally is not None
    assert (tally.repeated, tally.shadow_only, tally.repeat_only, tally.both) == (1, 0, 1, 0)
    assert rig.shadow.copies == {"equal": 1}


async def test_the_ledger_and_the_log_are_those_without_a_shadow() -> None:
    """The same requests with and without a shadow: every account is equal, to the last bit."""
    accounts, lines = [], []
    for shadowed in (False, True):
        configuration = shadowing(share="100%", noise="100%", limited=True)
        if not shadowed:
            model = configuration.models[0]
            route = model.routes[0].model_copy(update={"shadow": None})
            configuration = configuration.model_copy(
                update={"models": (model.model_copy(update={"routes": (route,)}),)}
            )
        rig = ShadowRig(configuration, copied_next=script("no"), copied_main=script("x"))
        rig.core.clock = lambda: 1e6
        for stream in (False, True) * 10:
            await rig.compare(chat(stream=stream))
        account = rig.ledger.accounts["acme"]
        left = [(unit, bucket.level) for allowance in account.always for unit, bucket in allowance.buckets.items()]
        accounts.append((left, list(account.spent.values()), account.in_flight, account.reserved_tokens))
        records = rig.log.records
        lines.append([(record.status, record.usage, record.cost, record.pool, record.arm) for record in records])
        assert len(rig.copied["next"].calls) == 20 * shadowed
        rig.assert_idle()
    assert accounts[0] == accounts[1]
    assert lines[0] == lines[1]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (TransportError("gone"), "unreachable"),
        (UpstreamTimeout("late"), "timeout"),
        (CapacityError("full"), "busy"),
        (BackendError("broken"), "differing"),
    ],
)
async def test_a_failing_shadow_changes_nothing_for_clients(fault: InferenceError, reason: str) -> None:
    """Its failures open its own breaker only."""
    rig = ShadowRig(shadowing(), copied_next=Script(fault=fault))
    for _ in range(10):
        assert b"hello" in await rig.compare(chat())
    assert rig.shadow.copies[reason] >= 3
    assert rig.shadow.copies.total() == 10
    assert rig.endpoints["next"][0].breaker.allows(rig.core.clock())
    assert rig.endpoints["main"][0].breaker.allows(rig.core.clock())
    rig.assert_idle()


async def test_an_unhealthy_shadow_receives_nothing() -> None:
    rig = ShadowRig(shadowing())
    rig.endpoints["next"][0].probed("dead", healthy_after=1, unhealthy_after=1)
    await rig.compare(chat())
    assert rig.shadow.copies == {"unavailable": 1}
    assert rig.copied["next"].calls == []


async def test_the_last_slot_is_a_clients() -> None:
    rig = ShadowRig(shadowing())
    endpoint, limit = rig.endpoints["next"][0], rig.core.snapshot.config.pools[1].max_in_flight
    for _ in range(limit - 1):
        endpoint.begin(rig.core.clock())
    await rig.compare(chat())
    assert rig.shadow.copies == {"busy": 1}
    endpoint.end(None, rig.core.clock())
    await rig.compare(chat())
    assert rig.shadow.copies == {"busy": 1, "equal": 1}


async def test_bounds_drop_copies() -> None:
    at_most = {"concurrency": 2, "requests": "100/s"}
    rig = ShadowRig(shadowing(at_most=at_most), copied_next=script(latency=60.0))
    for _ in range(5):
        await rig.send(chat())
    assert rig.shadow.copies == {"concurrency": 3}
    await rig.copies.stop()
    assert rig.shadow.copies == {"concurrency": 3, "drain": 2}
    await rig.send(chat())
    assert rig.shadow.copies == {"concurrency": 3, "drain": 3}
    rig.assert_idle()
    assert {call.end for call in rig.copied["next"].calls} <= {"cancelled"}
    rig = ShadowRig(shadowing(at_most={"concurrency": 8, "requests": "2/min"}))
    for _ in range(5):
        await rig.compare(chat())
    assert rig.shadow.copies == {"equal": 2, "rate": 3}


async def test_memory_is_bounded() -> None:
    rig = ShadowRig(shadowing(), copied_next=script(latency=60.0))
    large = replace(chat(), size=16 * 1024 * 1024 - 1)
    for _ in range(5):
        await rig.send(large)
    assert rig.shadow.copies == {"memory": 2}
    await rig.send(replace(chat(), size=17 * 1024 * 1024))
    assert rig.shadow.copies == {"memory": 2, "size": 1}
    await rig.copies.stop()
    rig.assert_idle()
    rig = ShadowRig(shadowing(), main=script("x" * (5 * 1024 * 1024)))
    await rig.send(chat())
    assert rig.shadow.copies == {"size": 1}
    rig = ShadowRig(shadowing(), main=Script((b"data: " + b"x" * 3_000_000,) * 3), copied_next=script())
    await rig.send(chat(stream=True))
    assert rig.shadow.copies == {"size": 1}
    rig.assert_idle()


async def test_a_client_that_leaves_is_not_copied() -> None:
    rig = ShadowRig(shadowing())
    answer = await rig.core.handle(rig.principal, chat(stream=True), {}, rig.record())
    await anext(answer)
    await answer.aclose()
    assert rig.shadow.copies == {"broken": 1}
    rig.assert_idle()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"store": True}, "state"),
        ({"tools": [{"type": "web_search"}]}, "effects"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "equal"),
        ({"tools": []}, "equal"),
        ({"store": False}, "equal"),
        ({"tools": [{"type": "function", "function": {"name": "f" * 70_000}}]}, "operation"),
        ({"web_search_options": {}}, "equal"),
        ({"web_search_options": {"a": 1}}, "effects"),
    ],
)
async def test_chats_with_state_or_effects_are_not_copied(fields: dict[str, Any], reason: str) -> None:
    rig = ShadowRig(shadowing())
    await rig.compare(chat(**fields))
    assert rig.shadow.copies == {reason: 1}
    assert len(rig.copied["next"].calls) == (reason == "equal")


@pytest.mark.parametrize(
    ("request_fields", "reason"),
    [
        ({"method": "GET"}, "equal"),
        ({"method": "POST", "repeatable": False}, "effects"),
        ({"method": "PUT"}, "effects"),
        ({"method": "POST", "repeatable": True}, "equal"),
        ({"method": "POST", "content_type": "multipart/form-data; boundary=x"}, "state"),
    ],
)
async def test_apps_with_effects_are_not_copied(request_fields: dict[str, Any], reason: str) -> None:
    rig = ShadowRig(shadowing())
    await rig.compare(AppRequest(model="chat", **request_fields))
    assert rig.shadow.copies == {reason: 1}


async def test_requests_of_sequences_are_not_copied() -> None:
    rig = ShadowRig(shadowing())
    await rig.compare(infer(sequence="s-1"))
    assert rig.shadow.copies == {"state": 1}


async def test_a_compressed_body_is_not_copied() -> None:
    rig = ShadowRig(shadowing())
    await rig.compare(replace(infer(), payload=HttpPayload(body=b"compressed", encoding="gzip")))
    assert rig.shadow.copies == {"operation": 1}


async def test_a_stored_response_is_not_copied() -> None:
    rig = ShadowRig(shadowing())
    record = rig.record()
    record.stored = True
    await rig.core.handle(rig.principal, chat(), {}, record)
    assert rig.shadow.copies == {"state": 1}


async def test_an_answer_of_the_cache_is_not_copied_and_no_copy_is_cached() -> None:
    rig = ShadowRig(shadowing(route={"cache": {"ttl": "1h", "only": "all"}}), copied_next=script("from the shadow"))
    first = await rig.send(chat())
    await rig.until_compared()
    assert await rig.send(chat()) == first
    assert rig.shadow.copies == {"differing": 1, "cached": 1}


async def test_an_answer_of_the_shadows_own_pool_is_not_compared() -> None:
    rig = ShadowRig(shadowing(route={"fallback": ["next"]}), main=Script(fault=BackendError("broken")))
    await rig.compare(chat())
    assert rig.shadow.copies == {"same": 1}
    assert rig.copied["next"].calls == []


async def test_a_model_is_a_target_without_its_limits_caches_and_shadows() -> None:
    other = {
        "name": "other",
        "limits": {"requests": "1/min"},
        "price": {"request": "1 usd"},
        "routes": [{"to": "other", "cache": {"ttl": "1h", "only": "all"}, "shadow": {"to": "main", "share": "100%"}}],
    }
    rig = ShadowRig(shadowing(to={"model": "other"}, models=(other,)), copied_other=script("another"))
    for _ in range(3):
        await rig.compare(chat())
    assert rig.shadow.copies == {"differing": 3}
    assert len(rig.copied["other"].calls) == 3
    assert rig.ledger.accounts["acme"].spent == {}
    assert rig.shadows.by_name["main"].copies == {}
    rig.assert_idle()


async def test_a_target_has_its_own_version_and_parameters() -> None:
    to = {"pool": "next", "rewrite": {"force": {"temperature": 0}}}
    rig = ShadowRig(shadowing(to=to, route={"rewrite": {"force": {"top_p": 0.5}}}))
    await rig.compare(chat())
    sent, copied = rig.live_fakes["main"].calls[0].request, rig.copied["next"].calls[0].request
    assert bytes(sent.codec.fields(sent)["top_p"]) == b"0.5"
    assert "top_p" not in copied.codec.fields(copied)
    assert bytes(copied.codec.fields(copied)["temperature"]) == b"0"
    rig = ShadowRig(shadowing(to={"pool": "next", "version": "2"}))
    await rig.compare(infer())
    assert rig.copied["next"].calls[0].request.version == "2"


async def test_copies_follow_the_endpoints_of_the_fleet() -> None:
    rig = ShadowRig(shadowing())
    await rig.compare(chat())
    fake = rig.copied["next"]
    rig.pools["next"].endpoints = []
    await rig.compare(chat())
    await asyncio.sleep(0)
    assert fake.closed
    assert rig.shadow.copies == {"equal": 1, "unavailable": 1}


async def test_a_share_is_drawn() -> None:
    rig = ShadowRig(shadowing(share="20%"))
    for _ in range(300):
        await rig.compare(chat())
    assert 30 <= rig.shadow.copies["equal"] <= 90


SPENDING = {"concurrency": 8, "requests": "10000/s", "spend": "10 usd/day"}


async def test_copies_stay_within_their_spend() -> None:
    """A copy has 3 prompt tokens and 2 completion tokens: 7 usd of 10. The next one may cost more than the rest."""
    configuration = shadowing(limited=True, at_most=SPENDING)
    price = {"prompt": "1000 usd/1k", "completion": "2000 usd/1k"}
    model = type(configuration.models[0]).model_validate(
        {**configuration.models[0].model_dump(mode="json", by_alias=True, exclude_unset=True), "price": price}
    )
    tenants = (configuration.tenants[0].model_copy(update={"limits": ()}),)
    rig = ShadowRig(configuration.model_copy(update={"models": (model,), "tenants": tenants}), copied_next=script())
    for _ in range(3):
        await rig.compare(chat(max_tokens=1))
    assert rig.shadow.copies["spend"] >= 1
    assert rig.shadow.copies["equal"] + rig.shadow.copies["spend"] == 3
    assert rig.shadow.cost == {"usd": rig.shadow.copies["equal"] * 7 * 10**12}
    rig.assert_idle()


async def test_the_times_of_both_answers_are_counted() -> None:
    rig = ShadowRig(shadowing(noise="100%"), copied_main=script(), copied_next=script("hello", latency=0.2))
    for stream in (False, True):
        await rig.compare(chat(stream=stream))
    tally = rig.shadow.take()
    assert tally is not None
    for counted in (tally.first_byte, tally.total):
        primary, shadow = counted
        assert (sum(primary.values()), sum(shadow.values())) == (2, 2)
        assert quantile(shadow, 0.5) >= 0.2 > quantile(primary, 0.5)
    total = PairTally()
    for _ in range(2):
        total.add(tally)
    assert sum(total.total[1].values()) == 4
    histograms = dict(rig.copies.seconds.of(["s"]))
    assert histograms["s", "shadow"].total.buckets()[-1] == ("+Inf", 2)
    assert dict(rig.copies.seconds.of([])) == {}
