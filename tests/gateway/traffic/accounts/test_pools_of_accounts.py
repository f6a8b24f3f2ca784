"""Several keys, models and regions in one pool: what rests, where the next request goes, and what an operator sees."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from adapters.call import Call
from adapters.errors import AccountsRest, InferenceError
from config.schema.config import Config
from gateway.admin.api.pools import describe_pools
from gateway.traffic.fleet.fleet import Fleet
from gateway.traffic.pool import Pool
from tests.support.gateways import chat, config
from tests.support.pools import FOREVER
from tests.support.providers.accounts import accounts


def two_keys(url: str, *, balance: str = "quota", **fields: Any) -> Config:
    pool = {
        "name": "main",
        "protocol": {"name": "openai", "dialect": "openai"},
        "probe": None,
        "balance": {"by": balance},
        "endpoints": [{"url": url, "key": "key-a"}, {"url": url, "key": "key-b", "name": "second"}],
    }
    return config(pools=[pool | fields], models=[{"name": "m*", "routes": [{"to": "main"}]}])


def use(fleet: Fleet, configuration: Config) -> Pool:
    return fleet.commit(fleet.prepare(configuration))["main"]


async def send(pool: Pool, model: str = "m", tenant: str = "acme", *, stream: bool = False) -> InferenceError | None:
    try:
        answer = await pool.call(chat(model, stream=stream), Call(FOREVER, tenant=tenant))
        assert answer.body is not None or [piece async for piece in answer]
    except InferenceError as error:
        return error
    return None


async def test_a_429_rests_one_key_and_one_model_and_nothing_else(fleet: Fleet) -> None:
    async with accounts() as provider:
        provider.others["key-a", "m1"] = 0.0
        pool = use(fleet, two_keys(provider.url, balance="round_robin"))
        errors = [await send(pool, "m1", tenant) for tenant in "abcabcabc"]
        assert sum(error is not None for error in errors) == 1  # the one that met the 429
        assert provider.sent["key-a", "m1"] == 1
        for tenant in "abc" * 4:
            assert await send(pool, "m2", tenant) is None
        assert provider.sent["key-a", "m2"] == 6  # another model of the same key is served as before
        assert all(endpoint.breaker.state(0.0) == "closed" for endpoint in pool.endpoints)


async def test_a_key_without_credit_rests_for_a_minute(fleet: Fleet) -> None:
    async with accounts() as provider:
        provider.broke.add("key-b")
        pool = use(fleet, two_keys(provider.url, balance="round_robin"))
        errors = [await send(pool) for _ in range(10)]
        assert sum(error is not None for error in errors) == 1
        provider.broke.clear()
        await asyncio.sleep(61)
        assert [await send(pool) for _ in range(4)] == [None] * 4
        assert provider.sent["key-b", "m"] == 3


async def test_a_whole_pool_at_rest_refuses_with_the_earliest_reset_and_its_cause(fleet: Fleet) -> None:
    async with accounts(requests=1.0, period=30.0) as provider:
        pool = use(fleet, two_keys(provider.url))
        assert [await send(pool) for _ in range(2)] == [None, None]
        error = await send(pool)
        assert isinstance(error, AccountsRest)
        assert error.retry_after == pytest.approx(30.0, abs=0.5)
        assert error.reason_of_refusal is not None
        assert error.reason_of_refusal.cause == "upstream_quota"
        assert sum(provider.sent.values()) == 2  # nothing is sent that would be refused
        assert await send(pool, "m-other") is None
        await asyncio.sleep(error.retry_after + 0.1)
        assert await send(pool) is None


@pytest.mark.parametrize("stream", [False, True])
async def test_a_burst_does_not_overrun_the_quota_that_the_provider_reports(fleet: Fleet, stream: bool) -> None:
    async with accounts(requests=10.0, period=3600.0) as provider:
        pool = use(fleet, two_keys(provider.url))
        await asyncio.gather(*(send(pool) for _ in range(2)))  # both quotas are known now
        errors = await asyncio.gather(*(send(pool, stream=stream) for _ in range(40)))
        assert not provider.refused
        assert sum(error is None for error in errors) == 18
        assert all(isinstance(error, AccountsRest) for error in errors if error is not None)
        assert _reserved(pool) == [0.0] * len(pool.endpoints)


async def test_the_next_request_goes_where_the_largest_share_is_left(fleet: Fleet) -> None:
    async with accounts(requests=100.0, period=36000.0) as provider:
        provider.others["key-a", "m"] = 30.0
        pool = use(fleet, two_keys(provider.url))
        for _ in range(90):
            assert await send(pool) is None
        left = [provider.buckets((key, "m"), asyncio.get_running_loop().time())[0].left for key in ("key-a", "key-b")]
        assert abs(left[0] - left[1]) <= 5  # it began with 30 beside 100


async def test_configured_limits_are_not_exceeded(fleet: Fleet) -> None:
    async with accounts(requests=1000.0) as provider:
        endpoints = [{"url": provider.url, "key": "key-a", "limits": {"requests": "6/min"}}]
        pool = use(fleet, two_keys(provider.url, endpoints=endpoints))
        errors = await asyncio.gather(*(send(pool) for _ in range(10)))
        assert sum(error is None for error in errors) == 6
        await asyncio.sleep(20.1)
        assert [await send(pool) is None for _ in range(3)] == [True, True, False]


async def test_tokens_of_a_limit_are_those_that_an_answer_has_used(fleet: Fleet) -> None:
    """Each request reserves 256 tokens for its answer, which has 12 in all."""
    async with accounts() as provider:
        endpoints = [{"url": provider.url, "key": "key-a", "limits": {"tokens": "600/hour"}}]
        pool = use(fleet, two_keys(provider.url, endpoints=endpoints))
        assert [await send(pool) for _ in range(20)] == [None] * 20


async def test_a_conversation_stays_with_its_key_until_that_has_little_left(fleet: Fleet) -> None:
    async with accounts(requests=20.0, period=36000.0) as provider:
        pool = use(fleet, two_keys(provider.url, balance="prefix_affinity"))
        request, sent = chat("m", messages=[{"role": "user", "content": "x" * 4000}]), list[str]()
        for _ in range(30):
            answer = await pool.call(request, Call(FOREVER, tenant="acme"))
            sent.append(answer.endpoint)
        moves = [number for number, pair in enumerate(itertools.pairwise(sent)) if pair[0] != pair[1]]
        assert 1 <= len(moves) <= 3  # an exploration of the cold key at most, besides
        assert set(sent) == {endpoint.id for endpoint in pool.endpoints}
        assert not provider.refused


async def test_endpoints_are_named_and_no_key_is_shown(fleet: Fleet) -> None:
    async with accounts() as provider:
        pool = use(fleet, two_keys(provider.url))
        assert pool.endpoints[1].id == "main/second"
        assert len({endpoint.id for endpoint in pool.endpoints} | {endpoint.place for endpoint in pool.endpoints}) == 4
        for _ in range(4):
            assert await send(pool) is None
        provider.broke.add("key-b")
        for _ in range(2):
            await send(pool)
        described = describe_pools(fleet, asyncio.get_running_loop().time())
        assert "key-" not in repr(described)
        models = [endpoint["models"]["m"] for endpoint in described[0]["endpoints"]]
        assert models[0]["quotas"]["requests"]["limit"] == 60
        assert models[1]["cause"] == "upstream_account"
        assert models[1]["rest_seconds"] == pytest.approx(60, abs=1)


async def test_a_model_and_headers_of_an_endpoint_replace_those_of_the_pool(fleet: Fleet) -> None:
    async with accounts() as provider:
        endpoints = [
            {"url": provider.url, "model": "deployed-a"},
            {
                "url": provider.url,
                "key": "key-c",
                "key_header": "x-api-key",
                "headers": [{"name": "x-a", "value": "1"}],
            },
        ]
        fields = {"key": "key-a", "model": "deployed", "endpoints": endpoints}
        pool = use(fleet, two_keys(provider.url, balance="round_robin", **fields))
        assert [await send(pool) for _ in range(4)] == [None] * 4
        assert provider.sent == {("key-a", "deployed-a"): 2, ("key-c", "deployed"): 2}


async def test_a_reload_preserves_the_pauses_and_another_key_has_none(fleet: Fleet) -> None:
    async with accounts(requests=1.0, period=600.0) as provider:
        pool = use(fleet, two_keys(provider.url))
        assert [await send(pool) for _ in range(2)] == [None, None]
        pool = use(fleet, two_keys(provider.url))
        assert isinstance(await send(pool), AccountsRest)
        rotated = [{"url": provider.url, "key": "key-new"}, {"url": provider.url, "key": "key-b", "name": "second"}]
        pool = use(fleet, two_keys(provider.url, endpoints=rotated))
        assert await send(pool) is None
        assert provider.sent["key-new", "m"] == 1


def test_accounts_differ_by_every_secret(fleet: Fleet) -> None:
    def name(pool: dict[str, Any]) -> str:
        made = config(pools=[{"name": "main", "endpoints": ["http://a:1"], "balance": {"by": "quota"}, **pool}])
        account = fleet._account(made.pools[0], "main/a")
        assert account is not None
        return account.name

    pools: list[dict[str, Any]] = [
        *({"key": key} for key in ("key-a", "key-b")),
        *({"credentials": {"aws": {"key_id": key, "secret": "s"}}} for key in ("key-a", "key-b")),
        {"credentials": {"aws": {"key_id": "key-a", "secret": "s2"}}},
        *({"headers": [{"name": "x-auth", "secret": key}]} for key in ("key-a", "key-b")),
    ]
    names = [name(pool) for pool in pools]
    assert len(set(names)) == len(pools)
    assert names == [name(pool) for pool in pools]
    assert "key-" not in repr(names)


def _reserved(pool: Pool) -> Sequence[float]:
    from gateway.traffic.accounts.endpoint import AccountEndpoint

    return [
        sum(quota._own)
        for endpoint in pool.endpoints
        if isinstance(endpoint, AccountEndpoint)
        for _, quota in endpoint.account.quotas()
    ]
