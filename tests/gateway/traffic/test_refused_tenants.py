"""A 429 that one tenant earned, at pools of endpoints with quotas by tenant: what the others see."""

import asyncio
from random import Random

import pytest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import AccountRefused, CapacityError, InferenceError, Resting, Scope
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelRequest
from config.schema.config import QueueConfig, TenantConfig
from gateway.traffic.endpoint import ACCOUNT_REST
from gateway.traffic.pool import Pool
from tests.support.deterministic import START
from tests.support.gateways import chat, infer
from tests.support.pools import FOREVER, pool


class Quota(FakeAdapter):
    """Refuses tenants by name, in the configured scope."""

    def __init__(self, *tenants: str, scope: Scope = "unknown", seconds: float | None = 30.0, latency: float = 0.0):
        super().__init__(Script(latency=latency))
        self.tenants = set(tenants)
        self.open: set[str] = set()
        """Models without a quota."""
        self.scope: Scope = scope
        self.seconds = seconds
        self.refusals = 0

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if call.tenant in self.tenants and request.model not in self.open:
            self.refusals += 1
            raise CapacityError("full", retry_after=self.seconds, scope=self.scope)
        return await super().call(request, call)


QUEUE = QueueConfig(max=50, timeout="30s")
TENANTS = [TenantConfig(name=name, models=("*",)) for name in "ab"]


async def send(at: Pool, tenant: str, model: str = "chat") -> InferenceError | None:
    try:
        answer = await at.call(chat(model), Call(FOREVER, tenant=tenant))
        assert [piece async for piece in answer] or answer.body is not None
    except InferenceError as error:
        return error
    return None


@pytest.mark.parametrize("scope", ["unknown", "tenant"])
async def test_a_429_of_one_tenant_rests_the_endpoint_for_that_tenant_alone(scope: Scope) -> None:
    fake = Quota("a", scope=scope)
    one = pool(fake)
    for _ in range(14):
        assert isinstance(await send(one, "a"), InferenceError)
        assert await send(one, "b") is None
    assert fake.refusals == 1  # the rest of a's requests is not sent
    assert one.endpoints[0].breaker.state(START) == "closed"
    fake.tenants.clear()
    await asyncio.sleep(30)
    assert await send(one, "a") is None


async def test_a_second_tenant_that_is_refused_rests_the_endpoint_for_all() -> None:
    fake = Quota("a", "b")
    one = pool(fake)
    for tenant in "ab":
        assert isinstance(await send(one, tenant), InferenceError)
    refused = await send(one, "c")
    assert isinstance(refused, Resting)
    assert refused.retry_after == pytest.approx(30.0)
    assert fake.refusals == 2


async def test_a_refusal_of_one_tenant_never_counts_for_others() -> None:
    one = pool(Quota("a", "b", scope="tenant", seconds=None))
    for _ in range(20):
        for tenant in "ab":
            assert await send(one, tenant) is not None
        assert await send(one, "c") is None
    assert one.endpoints[0].breaker.state(START) == "closed"


async def test_a_tenant_that_has_to_wait_does_not_block_the_queue() -> None:
    fake = Quota("a", seconds=5.0, latency=1.0)
    one = pool(fake, max_in_flight=1, queue=QUEUE, tenants=TENANTS)
    assert await send(one, "a") is not None
    fake.tenants.clear()
    waiting = [asyncio.create_task(send(one, "a")) for _ in range(3)]
    await asyncio.sleep(0.1)
    began = asyncio.get_running_loop().time()
    assert [await send(one, "b") for _ in range(3)] == [None] * 3
    assert asyncio.get_running_loop().time() - began < 3.5
    assert await asyncio.gather(*waiting) == [None] * 3


@pytest.mark.parametrize("seed", range(10))
async def test_a_tenant_that_no_endpoint_refuses_is_always_answered(seed: int) -> None:
    """Stories of quotas that come and go for some tenants, with and without times, queues and scopes."""
    rng = Random(seed)
    scope: Scope = rng.choice(["tenant", "unknown"])
    noisy = "abc" if scope == "tenant" else "a"
    fakes = [Quota(scope=scope, latency=rng.choice([0.0, 0.2])) for _ in range(rng.randint(1, 3))]
    one = pool(*fakes, max_in_flight=8, queue=QUEUE if rng.random() < 0.5 else None, tenants=TENANTS)

    async def flood(tenant: str) -> None:
        for _ in range(30):
            await asyncio.gather(send(one, tenant), asyncio.sleep(rng.uniform(0.0, 1.0)))

    async def calm() -> list[InferenceError | None]:
        ends = []
        for _ in range(60):
            for fake in fakes:
                fake.tenants = set(noisy) if rng.random() < 0.7 else set()
                fake.seconds = rng.choice([None, 0.5, 30.0])
            ends.append(await send(one, "calm"))
            await asyncio.sleep(rng.uniform(0.0, 1.0))
        return ends

    floods = [asyncio.create_task(flood(tenant)) for tenant in noisy]
    assert await calm() == [None] * 60
    async with asyncio.timeout(600):
        await asyncio.gather(*floods)
    assert all(endpoint.in_flight == 0 for endpoint in one.endpoints)


def hosted(*fakes: Quota, queue: QueueConfig | None = None, max_in_flight: int = 100) -> Pool:
    """A pool of endpoints that serve several models."""
    one = pool(*fakes, queue=queue, max_in_flight=max_in_flight, tenants=TENANTS)
    for endpoint in one.endpoints:
        endpoint.several = True
    return one


@pytest.mark.parametrize("scope", ["unknown", "server"])
async def test_a_limit_of_one_model_stops_no_other_model_for_any_tenant(scope: Scope) -> None:
    fake = Quota("a", "b", "c", scope=scope)
    fake.open = {"other"}
    one = hosted(fake)
    for tenant in "abc":
        refused = await send(one, tenant)
        assert isinstance(refused, CapacityError)
        assert [await send(one, each, "other") for each in "abc"] == [None] * 3
    assert fake.refusals == (2 if scope == "unknown" else 1)  # two tenants witness against a model, or its server does
    assert isinstance(refused, Resting)
    assert refused.retry_after == pytest.approx(30.0)
    assert one.endpoints[0].breaker.rests(asyncio.get_running_loop().time()) == 0.0
    await asyncio.sleep(60)
    fake.tenants.clear()
    assert await send(one, "a") is None
    assert not one.endpoints[0].refusals.held


class Loading(FakeAdapter):
    """Refuses the versions of a model that are not loaded, as a server that is busy does."""

    def __init__(self, *versions: str, latency: float = 0.0) -> None:
        super().__init__(Script(latency=latency))
        self.versions = set(versions)

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if request.version in self.versions:
            raise CapacityError("loading", retry_after=5.0)
        return await super().call(request, call)


async def ask(at: Pool, version: str, tenant: str = "a") -> InferenceError | None:
    try:
        answer = await at.call(infer("chat", version=version), Call(FOREVER, tenant=tenant))
        assert answer.body is not None or [piece async for piece in answer]
    except InferenceError as error:
        return error
    return None


@pytest.mark.parametrize("several", [False, True])
async def test_a_version_that_is_refused_stops_no_other_version(several: bool) -> None:
    one = pool(Loading("2"), tenants=TENANTS)
    one.endpoints[0].several = several
    for tenant in "ab":
        assert isinstance(await ask(one, "2", tenant), CapacityError)
    assert isinstance(await ask(one, "2"), Resting)
    assert [await ask(one, version) for version in ("1", "", "3")] == [None] * 3
    assert isinstance(await ask(one, "2"), Resting)  # an answer of another version proves nothing about this one


async def test_a_request_for_a_version_that_is_refused_holds_no_request_for_another_in_the_queue() -> None:
    loading = Loading("2", latency=1.0)
    one = pool(loading, queue=QUEUE, max_in_flight=1, tenants=TENANTS)
    assert isinstance(await ask(one, "2"), CapacityError)
    waiting = [asyncio.create_task(ask(one, "2")) for _ in range(2)]
    await asyncio.sleep(0.1)
    began = asyncio.get_running_loop().time()
    assert await asyncio.gather(*[ask(one, "1") for _ in range(3)]) == [None] * 3
    assert asyncio.get_running_loop().time() - began < 3.5
    loading.versions.clear()
    assert await asyncio.gather(*waiting) == [None] * 2


async def test_several_models_that_are_refused_rest_the_endpoint() -> None:
    fake = Quota("a", "b")
    one = hosted(fake)
    for model in ("first", "second"):
        for tenant in "ab":
            assert isinstance(await send(one, tenant, model), CapacityError)
    assert isinstance(await send(one, "c", "third"), Resting)
    assert fake.refusals == 4


async def test_a_request_for_a_limited_model_does_not_block_the_queue_of_its_own_tenant() -> None:
    fake = Quota("a", seconds=20.0, latency=1.0)
    fake.open = {"other"}
    one = hosted(fake, queue=QUEUE, max_in_flight=1)
    assert await send(one, "a") is not None
    waiting = [asyncio.create_task(send(one, "a")) for _ in range(2)]
    await asyncio.sleep(0.1)
    began = asyncio.get_running_loop().time()
    assert await asyncio.gather(*[send(one, "a", "other") for _ in range(3)]) == [None] * 3
    assert asyncio.get_running_loop().time() - began < 3.5
    fake.tenants.clear()
    assert await asyncio.gather(*waiting) == [None] * 2


async def test_a_request_for_a_limited_model_uses_an_open_breaker_behind_one_that_waits_for_a_slot() -> None:
    broken, busy = Quota(latency=1.0), Quota("a", scope="server", latency=10.0)
    busy.open = {"other"}
    one = hosted(broken, busy, queue=QUEUE, max_in_flight=1)
    one.endpoints[0].breaker.trip(100.0, asyncio.get_running_loop().time())
    assert isinstance(await send(one, "a"), CapacityError)
    others = [asyncio.create_task(send(one, "a", "other")) for _ in range(2)]
    await asyncio.sleep(0.1)
    assert one.waiting == 1  # the second one: `busy` accepts its model
    began = asyncio.get_running_loop().time()
    assert await send(one, "a") is None
    assert asyncio.get_running_loop().time() - began == pytest.approx(1.0)
    assert len(broken.calls) == 1
    assert await asyncio.gather(*others) == [None] * 2


async def test_an_exhausted_account_rests_the_endpoint_without_a_breaker() -> None:
    broke, solvent = FakeAdapter(Script(fault=AccountRefused("no credit"))), FakeAdapter()
    two = pool(broke, solvent)
    for _ in range(20):
        await send(two, "a")
    assert len(broke.calls) == 1
    assert two.endpoints[0].breaker.state(START) == "closed"
    await asyncio.sleep(ACCOUNT_REST)
    for _ in range(20):
        await send(two, "a")
    assert len(broke.calls) == 2
