"""Codec functions give the same here and in a worker process, and a worker that fails harms its own job only."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from adapters import offload
from adapters.errors import CallerError, CapacityError, LimitExceeded, TooLarge
from adapters.offload import packets, worker_queue
from adapters.offload import worker_queue as lanes
from adapters.offload.jobs import BODY, PICTURE, CodecCall, CodecJob, Cost
from adapters.offload.worker_queue import MAX_WAITING, WorkerQueue
from adapters.requests import ModelRequest
from adapters.tensors import NO_PARAMETERS, Inference, Tensor
from adapters.wire.anthropic import requests as anthropic
from adapters.wire.anthropic.message_request import TokenCount
from adapters.wire.oip import requests as oip
from adapters.wire.openai import chat as openai
from adapters.wire.responses import requests as responses

pytestmark = pytest.mark.processes

MiB = 1024 * 1024
PARTS = st.binary(max_size=2 * packets.INLINE)


def crossed(obj: Any) -> Any:
    """The messages that arrive at the other end."""
    file = packets.open_file()
    try:
        packets.write(file, obj)
        return packets.read(file)
    finally:
        os.close(file)


LEAVES = PARTS | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_plain_data_crosses_unchanged(obj: Any) -> None:
    assert crossed(obj) == obj


@given(PARTS)
def test_bytes_keep_their_types(data: bytes) -> None:
    plain, view, raw, nothing = crossed((data, memoryview(data), Raw(data), NO_PARAMETERS))
    assert (type(plain), type(view), type(raw)) == (bytes, memoryview, Raw)
    assert bytes(plain) == bytes(view) == bytes(raw) == data
    assert nothing is NO_PARAMETERS


@pytest.mark.parametrize("count", [1, packets._BREAK - 1, packets._BREAK, 5 * packets._BREAK + 1])
def test_many_objects_cross_unchanged(count: int) -> None:
    same = [1, "same"]
    made: list[Any] = [list(range(count)), {str(i): [i, {"a": (i, same)}] for i in range(count)}, [same] * count]
    assert crossed(made) == made


def _requests(messages: list[dict[str, str]]) -> list[Any]:
    chat = {"model": "m", "max_tokens": 3, "messages": messages}
    response = {"model": "m", "input": messages}
    decoders: list[tuple[Any, dict[str, Any]]] = [
        (openai.decode_chat, chat),
        (anthropic.decode_message, chat),
        (anthropic.decode_count, chat),
        (responses.decode, response),
        (responses.decode_native, response),
    ]
    return [decode(msgspec.json.encode(body)) for decode, body in decoders]


def _same_codecs(request: ModelRequest, other: ModelRequest) -> ModelRequest:
    """The request with the codec of another."""
    if isinstance(request, TokenCount) and isinstance(other, TokenCount):
        request = replace(request, chat=_same_codecs(request.chat, other.chat))
    return replace(request, codec=other.codec)


@given(st.lists(st.text(max_size=20), min_size=1), st.integers(1, 1000))
def test_requests_cross_unchanged(texts: list[str], times: int) -> None:
    for sent in _requests([{"role": "user", "content": text * times} for text in texts]):
        arrived = crossed(sent)
        first, second = (sent, arrived) if isinstance(sent, ModelRequest) else (sent[0], arrived[0])
        assert type(first.codec) is type(second.codec)
        assert _same_codecs(second, first) == first
        assert isinstance(sent, ModelRequest) or arrived[1:] == sent[1:]
        assert bytes(second.prompt) == bytes(first.prompt)


def test_a_message_crosses_before_its_chat_is_made() -> None:
    arrived = crossed(anthropic.decode_message(b'{"model":"m","max_tokens":1,"messages":[1]}'))
    assert not arrived.payload.reworded
    assert arrived.payload.chat is None
    with pytest.raises(CallerError):
        _ = arrived.fields


def test_a_value_and_its_view_are_one_part() -> None:
    request = crossed(openai.decode_chat(b'{"model":"m","messages":["%b"]}' % (b"x" * packets.INLINE)))
    view = memoryview(request.fields["messages"])
    assert bytes(view) == bytes(request.prompt)
    assert np.shares_memory(np.frombuffer(view, np.uint8), np.frombuffer(request.prompt, np.uint8))


JSON = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


def _values(obj: Any) -> int:
    inner = obj.values() if isinstance(obj, dict) else obj if isinstance(obj, list) else ()
    return 1 + sum(map(_values, inner))


@given(JSON, st.integers(1, 20), st.integers(1, 8))
def test_no_text_of_many_values_is_missed(obj: Any, many: int, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_queue, "MANY", many)
        patch.setattr(worker_queue, "_PIECE", piece)
        if _values(obj) - 1 > many:
            assert worker_queue.has_many_values(msgspec.json.encode(obj))
        assert not worker_queue.has_many_values(b'"' + b"base64/+" * 50 + b'"')


async def test_many_values_leave_and_a_long_text_stays() -> None:
    text = b'"%b"' % (b"x" * offload.LARGE)
    many = b"[%b1]" % (b"1," * offload.LARGE)
    assert await offload.parse(text, of_process) == os.getpid()
    assert await offload.parse(many, of_process) != os.getpid()
    assert await offload.parse(memoryview(many), of_process) != os.getpid()
    assert await offload.parse(b"[1]", of_process) == os.getpid()
    assert await offload.parse(b'"%b"' % (b"x" * offload.SCANNED), of_process) != os.getpid()


def of_process(*_: object) -> int:
    """The process that runs a job."""
    return os.getpid()


def refused(kind: type[CapacityError] | type[CallerError]) -> None:
    if kind is LimitExceeded:
        raise LimitExceeded("too often", limit="requests", retry_after=3.0)
    raise kind("not so", code="wrong", param="x", retry_after=2.0)


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def exits() -> None:
    os._exit(7)


def takes(size: int) -> int:
    return len(bytearray(size))


def sleeps(seconds: float) -> None:
    time.sleep(seconds)


def divides() -> float:
    return 1 / 0


def eventually(holds: Callable[[], bool]) -> bool:
    """Wait for a state of a lane."""
    ends = time.monotonic() + 300
    while not holds() and time.monotonic() < ends:
        time.sleep(0.001)
    return holds()


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch) -> WorkerQueue:
    """Its process ends soon after its last job."""
    monkeypatch.setattr(lanes, "IDLE_SECONDS", 0.5)
    return WorkerQueue(256 * MiB)


async def on(lane: WorkerQueue, function: Any, *args: Any) -> Any:
    async with asyncio.timeout(300):
        return await lane.run(CodecJob(CodecCall(function, args, {})))


async def test_a_small_body_stays_and_a_large_one_leaves() -> None:
    assert await offload.run(offload.LARGE - 1, of_process) == os.getpid()
    elsewhere = await offload.run(offload.LARGE, of_process)
    assert elsewhere != os.getpid()
    assert await offload.run(offload.LARGE, of_process) == elsewhere
    assert await offload.scan(offload.LARGE, of_process) == os.getpid()


async def test_a_huge_body_does_not_hold_up_a_large_one() -> None:
    huge, large = 64 * MiB, offload.LARGE
    assert await offload.run(huge, of_process) != await offload.run(large, of_process)


@pytest.mark.parametrize("kind", [CallerError, TooLarge, CapacityError, LimitExceeded])
async def test_a_refusal_arrives_as_it_was_raised(kind: type[CallerError]) -> None:
    with pytest.raises(kind) as here:
        refused(kind)
    with pytest.raises(kind) as there:
        await offload.run(offload.LARGE, refused, kind)
    assert type(there.value) is kind
    assert vars(there.value) == vars(here.value)
    assert str(there.value) == str(here.value)


async def test_a_worker_that_ends_fails_its_job_and_the_next_one_runs(lane: WorkerQueue) -> None:
    with pytest.raises(CapacityError):
        await on(lane, exits)
    assert await on(lane, of_process) != os.getpid()


async def test_a_job_that_takes_too_much_memory_is_refused(lane: WorkerQueue) -> None:
    assert await on(lane, takes, 64 * MiB) == 64 * MiB
    with pytest.raises(TooLarge, match="256 MiB"):
        await on(lane, takes, 512 * MiB)
    assert await on(lane, takes, MiB) == MiB


async def test_an_error_of_ours_names_its_place(lane: WorkerQueue) -> None:
    with pytest.raises(RuntimeError, match="in divides"):
        await on(lane, divides)


def begun(lane: WorkerQueue, job: CodecJob) -> CodecJob:
    """A job that runs."""
    lane.submit(job)
    assert eventually(lambda: lane.running is job)
    return job


def job(function: Any, *args: Any, tenant: str = "", cost: Cost = BODY) -> CodecJob:
    return CodecJob(CodecCall(function, args, {}), tenant, cost)


async def test_a_job_ends_with_its_request(lane: WorkerQueue) -> None:
    worker = await on(lane, of_process)
    lane.abandon(begun(lane, job(sleeps, 60.0)))
    assert await on(lane, of_process) != worker


async def test_a_tenant_with_too_many_jobs_is_refused_and_no_other(lane: WorkerQueue) -> None:
    await on(lane, of_process)
    first = begun(lane, job(sleeps, 60.0, tenant="acme"))
    waiting = [job(of_process, tenant="acme") for _ in range(MAX_WAITING)]
    for each in waiting:
        lane.submit(each)
    with pytest.raises(LimitExceeded, match="64 large bodies of acme wait"):
        lane.submit(job(of_process, tenant="acme"))
    other = job(of_process, tenant="beta")
    lane.submit(other)
    for each in [*waiting, first]:
        lane.abandon(each)
    assert all(each.future.cancelled() for each in waiting)
    assert await asyncio.wrap_future(other.future) != os.getpid()


def spins(until: str = "") -> None:
    """Take processor time without end, in native code. The file `until` receives a byte at each begin."""
    if until:
        with Path(until).open("ab") as file:
            file.write(b".")
    sum(range(10**12))


async def test_a_job_beyond_its_processor_time_ends_alone_and_starts_once_more(
    lane: WorkerQueue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lanes, "SHORT", 0.1)
    short, begins = WorkerQueue(256 * MiB, beyond=lane), tmp_path / "begins"
    worker = await on(short, of_process)
    long = job(spins, str(begins), tenant="acme", cost=PICTURE._replace(seconds=0.2))
    behind = [job(sleeps, 0.3, tenant=tenant) for tenant in ("acme", "beta", "acme", "beta")]
    for each in (long, *behind):
        short.submit(each)
    async with asyncio.timeout(300):
        with pytest.raises(TooLarge, match=r"The picture takes more than 0.2 s of processor time to decode"):
            await asyncio.wrap_future(long.future)
        assert [await asyncio.wrap_future(each.future) for each in behind] == [None] * 4
    assert begins.read_bytes() == b".."
    assert await on(short, of_process) != worker


async def test_jobs_of_a_tenant_follow_its_long_one(lane: WorkerQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "SHORT", 0.1)
    short = WorkerQueue(256 * MiB, beyond=lane)
    long = job(spins, tenant="acme")
    short.submit(long)
    assert eventually(lambda: lane.running is long)
    behind, other = job(of_process, tenant="acme"), job(of_process, tenant="beta")
    short.submit(behind)
    short.submit(other)
    assert await asyncio.wrap_future(other.future) != os.getpid()
    assert not behind.future.done()
    short.abandon(long)
    assert await asyncio.wrap_future(behind.future) != await asyncio.wrap_future(other.future)


async def test_a_worker_without_jobs_ends(lane: WorkerQueue) -> None:
    worker = await on(lane, of_process)
    async with asyncio.timeout(300):
        while _exists(worker):
            await asyncio.sleep(0.01)
    assert await on(lane, of_process) != worker


async def test_the_worker_sees_no_secret(lane: WorkerQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "sk-secret")
    assert await on(lane, os.getenv, "UPSTREAM_KEY") is None


async def test_a_request_is_decoded_the_same() -> None:
    body = msgspec.json.encode(
        {
            "inputs": [
                {"name": "a", "datatype": "FP32", "shape": [2, 20_000], "data": [0.5] * 40_000},
                {"name": "b", "datatype": "BYTES", "shape": [3], "data": ["é", "", "x" * 9]},
            ]
        }
    )
    there = await offload.run(len(body), oip.decode_request, body, None, "m")
    assert there == oip.decode_request(body, None, "m")
    assert isinstance(there, Inference)
    assert isinstance(there.inputs[0], Tensor)
