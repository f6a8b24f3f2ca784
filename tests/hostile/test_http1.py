"""Every adapter over HTTP/1.1: one clear error of the right class, in time, in bounds, and then it works again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module

import pytest

from adapters.base import Adapter
from adapters.errors import BackendError, CallerError, InferenceError
from adapters.http1.client import ClientResponse
from adapters.registry import MODULES, Address, make
from config.schema.config import PoolConfig
from tests.hostile.attacks import ATTACKS, REDIRECTS, STATUS, Attack, Right
from tests.hostile.calls import LATER, OUTER, SOON, Outcome, outcome
from tests.hostile.grpc_samples import GRPC_SAMPLES
from tests.hostile.sample import Sample, crossed, good_of, on_shelf
from tests.hostile.samples import SAMPLES
from tests.hostile.server import Hostile, Peer, http, listening

WITHOUT_A_SERVER = {"bus"}
"""Its endpoints are brokers, which the client libraries of the brokers call: `tests/adapters/brokers`."""
READERS = {("openai", "chat"), ("openai", "chat stream"), ("bedrock", "chat stream"), ("http", "app")}
"""A sample of each way to read an answer: JSON, events, frames, any bytes. The plain shelf attacks these in memory."""
EACH = [
    pytest.param(name, sample, id=f"{name}-{sample.kind}", marks=on_shelf((name, sample.kind) in READERS))
    for name in MODULES
    for sample in SAMPLES.get(name, ())
]
MOST_SENT = 32 * 1024 * 1024
"""Bytes that a server may send before the adapter stops reading: much of it is in the system's buffers."""
LATE = frozenset({
    "announces_more_than_it_sends", "sends_nothing", "head_in_drops", "body_in_drops", "endless_comments",
})  # fmt: skip

pytestmark = pytest.mark.usefixtures("network")


@pytest.fixture(autouse=True)
def small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the bound of answers, so that an endless answer is detected at once."""
    monkeypatch.setattr(ClientResponse.read, "__defaults__", (1 << 20,))
    for module in {*MODULES.values(), "adapters.upstreams.inferred"}:
        imported = import_module(module)
        if hasattr(imported, "MAX_ANSWER"):
            monkeypatch.setattr(imported, "MAX_ANSWER", 1 << 20)


@asynccontextmanager
async def attacked(name: str, sample: Sample) -> AsyncIterator[tuple[Hostile, Adapter, Outcome]]:
    """A server that is well so far, the adapter for it, and its right answers."""
    hostile = Hostile(good_of(sample), well=sample.right.answer)
    async with listening(hostile), asyncio.timeout(OUTER):
        pool = PoolConfig.model_validate(
            {"name": "p", "protocol": {"name": name, **sample.options}, "endpoints": [hostile.url]}
        )
        adapter = make(pool, Address(hostile.url))
        try:
            right = await outcome(adapter, sample.request(), LATER)
            assert right.error is None, right.error
            assert right.body
            yield hostile, adapter, right
            hostile.play = None
            assert await outcome(adapter, sample.request(), LATER) == right
        finally:
            await adapter.aclose()
        assert hostile.wrong == []


def applies(sample: Sample, attack: Attack) -> bool:
    return not attack.only or (not sample.opaque and (attack.only == "streams") == sample.right.streams)


@pytest.mark.parametrize(("name", "sample", "attack"), crossed(EACH, ATTACKS, applies))
async def test_an_attack_is_one_error_of_the_right_class(name: str, sample: Sample, attack: Attack) -> None:
    async with attacked(name, sample) as (hostile, adapter, right):
        hostile.reusable = attack.reusable
        hostile.play = lambda peer: attack.play(peer, sample.right)
        result = await outcome(adapter, sample.request(), SOON if attack.name in LATE else LATER)
        assert hostile.attacked or attack.name in LATE
        if result.error is None:
            passes = attack.content and (sample.opaque or (sample.open_ended and right.body.startswith(result.body)))
            passes = passes or attack.name in sample.lenient
            assert passes or (attack.may_pass and result == right), result.body[:200]
        else:
            assert isinstance(result.error, attack.ends), repr(result.error)
            assert result.error.message
            assert hostile.url.rpartition(":")[2] not in result.error.message
    assert hostile.sent <= MOST_SENT


@pytest.mark.parametrize(("name", "sample"), EACH)
async def test_statuses_without_words(name: str, sample: Sample) -> None:
    async with attacked(name, sample) as (hostile, adapter, _):
        hostile.reusable = True
        for status, expected in STATUS.items():
            hostile.play = partial(Peer.send, data=http(status, "text/plain", b""))
            result = await outcome(adapter, sample.request(), LATER)
            passes = result.error is None and sample.opaque and status < 500
            assert passes or isinstance(result.error, expected), (status, result)


@pytest.mark.parametrize(("name", "sample"), EACH)
async def test_no_redirect_is_followed(name: str, sample: Sample) -> None:
    trap = Hostile(lambda _: None, well=sample.right.answer)
    async with listening(trap), attacked(name, sample) as (hostile, adapter, _):
        hostile.reusable = True
        for status in REDIRECTS:
            hostile.play = partial(Peer.send, data=http(status, "text/html", b"", f"location: {trap.url}/"))
            result = await outcome(adapter, sample.request(), LATER)
            assert isinstance(result.error, BackendError | CallerError), (status, result)
        assert trap.sent == 0


WRONG = [
    pytest.param(name, sample, body, id=f"{name}-{sample.kind}-{mistake}")
    for name in MODULES
    for sample in SAMPLES.get(name, ())
    for mistake, body in sample.wrong.items()
]


@pytest.mark.parametrize(("name", "sample", "body"), WRONG)
async def test_a_healthy_server_that_is_wrong(name: str, sample: Sample, body: bytes) -> None:
    async with attacked(name, sample) as (hostile, adapter, _):
        hostile.reusable = True
        hostile.play = lambda peer: peer.send(http(200, sample.content_type, body))
        result = await outcome(adapter, sample.request(), LATER)
        assert result.error is not None, result.body


UNREADABLE = [
    pytest.param(name, sample, body, id=f"{name}-{sample.kind}-{mistake}")
    for name in MODULES
    for sample in SAMPLES.get(name, ())
    for mistake, body in sample.unreadable.items()
]


@pytest.mark.parametrize(("name", "sample", "body"), UNREADABLE)
async def test_a_report_that_cannot_be_read_fails_no_answer(name: str, sample: Sample, body: bytes) -> None:
    """Counts only bill an answer, and likelihoods only explain it."""
    async with attacked(name, sample) as (hostile, adapter, _):
        hostile.reusable = True
        hostile.play = lambda peer: peer.send(http(200, sample.content_type, body))
        result = await outcome(adapter, sample.request(), LATER)
        assert result.error is None, result.error
        assert result.body


@pytest.mark.parametrize(("name", "sample"), EACH)
async def test_a_cancelled_slow_call_is_disconnected(name: str, sample: Sample) -> None:
    """A call that is cancelled ends at once, and the server sees it."""
    async with attacked(name, sample) as (hostile, adapter, _):
        seen, left = asyncio.Event(), asyncio.Event()

        async def play(peer: Peer) -> None:
            seen.set()
            await peer.left()
            left.set()

        hostile.play = play
        call = asyncio.create_task(outcome(adapter, sample.request(), LATER))
        await seen.wait()
        call.cancel()
        await asyncio.wait([call])
        await left.wait()


def test_every_protocol_has_its_samples() -> None:
    """Every adapter of a server has lines in samples.py or grpc_samples.py; `auto` uses those of the other adapters."""
    assert set(MODULES) - {"auto", *WITHOUT_A_SERVER} <= {*SAMPLES, *GRPC_SAMPLES}


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack.only != "streams"], ids=lambda one: one.name)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=on_shelf(name == "openai"))
        for name in MODULES
        if name not in {*GRPC_SAMPLES, *WITHOUT_A_SERVER}
    ],
)
async def test_a_health_check_ends_in_time(name: str, attack: Attack) -> None:
    """Well or ill, and never otherwise."""
    hostile = Hostile(lambda _: None, reusable=attack.reusable)
    hostile.play = lambda peer: attack.play(peer, Right(b"{}", "application/json"))
    async with listening(hostile), asyncio.timeout(OUTER):
        pool = PoolConfig.model_validate({"name": "p", "protocol": name, "endpoints": [hostile.url]})
        adapter = make(pool, Address(hostile.url))
        try:
            with suppress(InferenceError, TimeoutError):
                await adapter.probe(0.3)
        finally:
            await adapter.aclose()
    assert hostile.wrong == []
    assert hostile.sent <= MOST_SENT
