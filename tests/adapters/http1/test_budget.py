"""Bytes that requests hold are reserved before they come, and given back however the exchange ends."""

import asyncio
import gzip
import importlib
import random
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import InferenceError, LimitExceeded, Overloaded, TooLarge
from adapters.http1.budget import COPIES, FREE_BYTES, STEP, Budget
from adapters.http1.message import Request, Response
from adapters.http1.server import Limits
from adapters.wire import compression
from tests.adapters.http1.raw import Served, post, serving, until

KiB = 1024
BOMB = 8 * KiB * KiB
"""Zeros, so that each coding packs them by more than the ratio that is allowed."""
brotli: Any = importlib.import_module("brotli")  # which has no types


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60))))
def test_a_budget_never_holds_more_than_its_limit_and_counts_in_its_parent(steps: list[tuple[int, int]]) -> None:
    parent = Budget(100)
    children = [Budget(70, parent, "a"), Budget(70, parent, "b")]
    taken: list[tuple[Budget, int]] = []
    for child_number, size in steps:
        if child_number == 2 and taken:
            budget, amount = taken.pop()
            budget.give(amount)
            continue
        child = children[child_number % 2]
        refused: InferenceError | None = None
        parent_full = parent.held + size > parent.limit
        fits = not parent_full and child.held + size <= child.limit
        try:
            child.take(size)
        except InferenceError as error:
            refused = error
        else:
            taken.append((child, size))
        assert fits is (refused is None)
        assert refused is None or isinstance(refused, Overloaded if parent_full else LimitExceeded)
        assert parent.held == sum(child.held for child in children) <= parent.limit
        assert all(child.held <= child.limit for child in children)


def test_a_body_over_the_budget_is_too_large() -> None:
    with pytest.raises(TooLarge):
        Budget(100).take(101)


async def size_of(request: Request) -> Response:
    try:
        return Response(200, body=b"%d" % len(await request.read()))
    except InferenceError as error:
        status = {Overloaded: 503, LimitExceeded: 429, TooLarge: 413}.get(type(error), 400)
        return Response(status, body=error.code.encode())


def budgeted(kib: int) -> Limits:
    return Limits(max_body=10_000 * KiB, max_held=COPIES * kib * KiB)


async def idle(served: Served) -> None:
    await until(lambda: served.server.budget.held == 0)


async def test_a_body_is_reserved_before_it_arrives() -> None:
    async with serving(size_of, budgeted(100)) as served:
        first, second = await served.connect(), await served.connect()
        first.send(post("Content-Length: 65536"))
        await until(lambda: served.server.budget.held == COPIES * 64 * KiB)
        second.send(post("Content-Length: 65536", "Expect: 100-continue"))
        assert (await second.reply()).status == 503
        first.send(bytes(65536))
        assert (await first.reply()).body == b"65536"
        await idle(served)


async def test_a_body_of_unknown_length_is_charged_as_it_arrives() -> None:
    async with serving(size_of, budgeted(600)) as served:
        client = await served.connect()
        client.send(post("Transfer-Encoding: chunked"))
        chunk = b"%x\r\n%b\r\n" % (100 * KiB, bytes(100 * KiB))
        client.send(chunk)
        await until(lambda: served.server.budget.held >= COPIES * 100 * KiB)
        assert served.server.budget.held <= COPIES * (100 * KiB + STEP)
        client.send(chunk * 6)
        assert (await client.reply()).status == 503
        await idle(served)


async def test_the_reservation_is_released_when_the_client_disconnects() -> None:
    async with serving(size_of, budgeted(1000)) as served:
        client = await served.connect()
        client.send(post("Content-Length: 1000000", body=bytes(1000)))
        await until(lambda: served.server.budget.held > 0)
        client.close()
        await idle(served)


async def test_a_small_body_is_not_charged() -> None:
    async with serving(size_of, Limits(max_held=0)) as served:
        client = await served.connect()
        client.send(post(f"Content-Length: {FREE_BYTES}", body=bytes(FREE_BYTES)))
        assert (await client.reply()).status == 200


async def test_answers_that_are_not_taken_count_and_refuse_further_bodies() -> None:
    async def large(request: Request) -> Response:
        if request.path == "/large":
            return Response(200, body=bytes(20_000 * KiB))
        return await size_of(request)

    async with serving(large, budgeted(1000)) as served:
        slow = await served.connect()
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        slow.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: served.server.budget.held > 10_000 * KiB)
        client = await served.connect()
        client.send(post("Content-Length: 1", body=b"x"))
        assert (await client.reply()).status == 503
        slow.close()
        await idle(served)
        client = await served.connect()
        client.send(post("Content-Length: 1", body=b"x"))
        assert (await client.reply()).status == 200


@pytest.mark.parametrize("seed", range(3))
async def test_however_exchanges_end_nothing_stays_held(seed: int) -> None:
    rng = random.Random(seed)
    async with serving(size_of, budgeted(300)) as served:

        async def one(dice: random.Random) -> None:
            client = await served.connect()
            size = dice.choice([10, 20 * KiB, 90 * KiB, 400 * KiB])
            if dice.random() < 0.5:
                client.send(post(f"Content-Length: {size}"))
                client.send(bytes(dice.choice([0, size // 2, size])))
            else:
                client.send(post("Transfer-Encoding: chunked"))
                client.send(b"%x\r\n%b\r\n" % (size, bytes(size)))
                client.send(dice.choice([b"", b"0\r\n\r\n", b"zz"]))
            for _ in range(dice.randrange(40)):
                await asyncio.sleep(0)
            client.close()

        await asyncio.gather(*[one(random.Random(rng.random())) for _ in range(40)])
        await idle(served)


# ── content codings ───────────────────────────────────────────────────────────────────────────────────────

ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "br": partial(brotli.compress, quality=5),
}


@pytest.mark.parametrize("coding", ENCODERS)
async def test_a_body_is_decoded(coding: str) -> None:
    body = random.Random(1).randbytes(50_000).hex().encode()
    packed = ENCODERS[coding](body)
    async with serving(size_of) as served:
        client = await served.connect()
        fields = (f"Content-Encoding: {coding}", f"Content-Length: {len(packed)}")
        client.send(post(*fields, body=packed))
        assert (await client.reply()).body == b"%d" % len(body)
        client.send(post(*fields, body=packed[:-1] + b"\0"))
        assert (await client.reply()).status in (200, 400)


@pytest.mark.parametrize("coding", ENCODERS)
async def test_a_bomb_is_refused_at_the_ratio_and_at_the_limit(coding: str) -> None:
    bomb = ENCODERS[coding](bytes(BOMB))
    most = compression.FREE_BYTES + compression.MAX_RATIO * len(bomb)
    async with serving(size_of, Limits(max_body=1 << 30)) as served:
        client = await served.connect()
        client.send(post(f"Content-Encoding: {coding}", f"Content-Length: {len(bomb)}", body=bomb))
        assert (await client.reply()).status == (413 if most < BOMB else 200)
    async with serving(size_of, Limits(max_body=100_000)) as served:
        client = await served.connect()
        small = ENCODERS[coding](bytes(100_001))
        client.send(post(f"Content-Encoding: {coding}", f"Content-Length: {len(small)}", body=small))
        assert (await client.reply()).status == 413


async def test_a_decompressed_body_is_charged() -> None:
    packed = gzip.compress(bytes(300 * KiB))
    async with serving(size_of, budgeted(200)) as served:
        client = await served.connect()
        client.send(post("Content-Encoding: gzip", f"Content-Length: {len(packed)}", body=packed))
        assert (await client.reply()).status == 413
        await idle(served)
