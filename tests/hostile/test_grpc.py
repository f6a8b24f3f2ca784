"""Every adapter over gRPC: one clear error of the right class, in time, in bounds, and then it works again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module

import pytest

from adapters.base import Adapter
from adapters.errors import BackendError, CapacityError, InferenceError, TransportError
from adapters.http2.frames import END_STREAM, goaway
from adapters.registry import MODULES, Address, make
from config.schema.config import PoolConfig
from tests.hostile.calls import LATER, OUTER, SOON, Outcome, outcome
from tests.hostile.grpc_attacks import ATTACKS, CODES, STATUS, GrpcAttack, reset
from tests.hostile.grpc_samples import GRPC_SAMPLES, GrpcSample
from tests.hostile.grpc_server import HEAD, H2Peer, HostileH2
from tests.hostile.sample import crossed, on_shelf
from tests.hostile.server import listening

MOST_SENT = 48 * 1024 * 1024
"""Bytes that a server may send before the adapter stops reading."""
LATE = frozenset({"sends_nothing", "a_head_and_nothing", "a_message_in_drops"})
READERS = {("oip-grpc", "infer"), ("oip-grpc", "infer stream"), ("ray-serve-grpc", "app")}
"""A sample of each way to read an answer: a message, messages, any bytes. The plain shelf attacks these in memory."""
EACH = [
    pytest.param(name, sample, id=f"{name}-{sample.kind}", marks=on_shelf((name, sample.kind) in READERS))
    for name in MODULES
    for sample in GRPC_SAMPLES.get(name, ())
]
pytestmark = pytest.mark.usefixtures("network")


@pytest.fixture(autouse=True)
def small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the bound of answers, so that a too large answer is detected at once."""
    for module in MODULES.values():
        imported = import_module(module)
        if hasattr(imported, "MAX_ANSWER"):
            monkeypatch.setattr(imported, "MAX_ANSWER", 1 << 20)


def adapter_for(name: str, url: str, sample: GrpcSample | None = None) -> Adapter:
    options = {} if sample is None else sample.options
    pool = PoolConfig.model_validate({"name": "p", "protocol": {"name": name, **options}, "endpoints": [url]})
    return make(pool, Address(url))


@asynccontextmanager
async def attacked(name: str, sample: GrpcSample) -> AsyncIterator[tuple[HostileH2, Adapter, Outcome]]:
    """A server that is well so far, the adapter for it, and its right answers."""
    hostile = HostileH2(sample.good, sample.messages)
    async with listening(hostile), asyncio.timeout(OUTER):
        adapter = adapter_for(name, hostile.url, sample)
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


@pytest.mark.parametrize(
    ("name", "sample", "attack"),
    crossed(EACH, ATTACKS, lambda sample, attack: not (attack.once and sample.streams)),
)
async def test_an_attack_over_grpc_is_one_error_of_the_right_class(
    name: str, sample: GrpcSample, attack: GrpcAttack
) -> None:
    async with attacked(name, sample) as (hostile, adapter, _):
        hostile.reusable = attack.reusable
        hostile.play = lambda peer: attack.play(peer, sample.messages[0])
        result = await outcome(adapter, sample.request(), SOON if attack.name in LATE else LATER)
        assert hostile.attacked or attack.name in LATE
        assert (result.error is None and attack.content and sample.opaque) or isinstance(result.error, attack.ends), (
            result
        )
        if attack.floods:
            while hostile.connections:
                await asyncio.sleep(0.1)
        if result.error is not None:
            assert result.error.message
            assert hostile.url.rpartition(":")[2] not in result.error.message
    assert hostile.sent <= MOST_SENT or attack.floods  # the adapter drains the rest for a moment, and does not store it


@pytest.mark.parametrize("behind", ["nothing", "a head", "a message"])
@pytest.mark.parametrize(("name", "sample"), EACH)
async def test_every_status(name: str, sample: GrpcSample, behind: str) -> None:
    async def play(peer: H2Peer, code: bytes) -> None:
        if behind == "nothing":
            await peer.headers([*HEAD, (b"grpc-status", code)], END_STREAM)
            return
        await peer.head()
        if behind == "a message":
            await peer.data(b"\0" + len(sample.messages[0]).to_bytes(4, "big") + sample.messages[0])
        await peer.status(code, b"no, because of %F0%9F%98%80 and %zz")

    async with attacked(name, sample) as (hostile, adapter, _):
        hostile.reusable = True
        for code, expected in STATUS.items():
            if sample.streams and code == b"12":
                continue  # a protocol without streams gets a unary request
            hostile.play = partial(play, code=code)
            result = await outcome(adapter, sample.request(), LATER)
            assert isinstance(result.error, expected), (code, result)


@pytest.mark.parametrize("how", ["the stream", "the connection"])
@pytest.mark.parametrize(("name", "sample"), EACH)
async def test_every_code_of_http2(name: str, sample: GrpcSample, how: str) -> None:
    async def play(peer: H2Peer, code: int) -> None:
        if how == "the stream":
            await peer.send(reset(peer, code))
        else:
            await peer.send(goaway(0, code))  # type: ignore[arg-type]
            await peer.left()

    async with attacked(name, sample) as (hostile, adapter, _):
        hostile.reusable = how == "the stream"
        for code in CODES:
            hostile.play = partial(play, code=code)
            result = await outcome(adapter, sample.request(), LATER)
            assert isinstance(result.error, BackendError | TransportError | CapacityError), (code, result)


WRONG = [
    pytest.param(name, sample, message, id=f"{name}-{sample.kind}-{mistake}")
    for name in MODULES
    for sample in GRPC_SAMPLES.get(name, ())
    for mistake, message in sample.wrong.items()
]


@pytest.mark.parametrize(("name", "sample", "message"), WRONG)
async def test_a_healthy_server_over_grpc_that_is_wrong(name: str, sample: GrpcSample, message: bytes) -> None:
    async with attacked(name, sample) as (hostile, adapter, _):
        hostile.reusable = True
        hostile.play = lambda peer: peer.answer(message)
        result = await outcome(adapter, sample.request(), LATER)
        assert result.error is not None, result.body


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=on_shelf(name == "oip-grpc")) for name in MODULES if name in GRPC_SAMPLES]
)
async def test_a_health_check_over_grpc_ends_in_time(name: str, attack: GrpcAttack) -> None:
    """Well or ill, and never otherwise."""
    hostile = HostileH2({}, reusable=attack.reusable)
    hostile.play = lambda peer: attack.play(peer, b"")
    async with listening(hostile), asyncio.timeout(OUTER):
        adapter = adapter_for(name, hostile.url)
        try:
            with suppress(InferenceError, TimeoutError):
                await adapter.probe(0.3)
        finally:
            await adapter.aclose()
    assert hostile.wrong == []
    assert hostile.sent <= MOST_SENT or attack.floods
