"""Virtual time passes as real time would, and hangs are errors."""

import asyncio
from typing import Any

import pytest

from tests.simulation import virtual
from tests.simulation.virtual import Stuck, VirtualLoop, Wire


def test_time_jumps_from_timer_to_timer() -> None:
    async def main(loop: VirtualLoop) -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, loop.time()))

        await asyncio.gather(sleeper("b", 7200.0), sleeper("a", 0.5))
        return seen

    assert virtual.run(main) == [("a", 0.5), ("b", 7200.0)]


def test_a_wait_that_nothing_ends_is_an_error() -> None:
    with pytest.raises(Stuck, match="nothing will end it"):
        virtual.run(lambda loop: loop.create_future())  # type: ignore[arg-type,return-value]


def test_a_loop_in_which_no_time_passes_is_an_error() -> None:
    async def main(_: VirtualLoop) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="no time passes"):
        virtual.run(main)


class Peer(asyncio.Protocol):
    """Records its events."""

    wire: Wire

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Wire)
        self.wire = transport

    def data_received(self, data: bytes) -> None:
        self.seen.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.seen.append(exc and type(exc))

    def pause_writing(self) -> None:
        self.seen.append("pause")

    def resume_writing(self) -> None:
        self.seen.append("resume")


async def pair(loop: VirtualLoop) -> tuple[Peer, Peer]:
    near, far = Peer(), Peer()
    loop.network.listen(lambda: far, ("far", 80))
    await loop.network.connect(lambda: near, ("far", 80))
    return near, far


def test_data_written_before_a_close_arrives() -> None:
    async def main(loop: VirtualLoop) -> tuple[Peer, Peer]:
        near, far = await pair(loop)
        near.wire.write(b"one")
        near.wire.write(b"two")
        near.wire.close()
        near.wire.write(b"too late")
        await asyncio.sleep(1)
        return near, far

    near, far = virtual.run(main)
    assert (near.seen, far.seen) == ([None], [b"one", b"two", None])


def test_an_abort_is_a_reset_for_the_other_end() -> None:
    async def main(loop: VirtualLoop) -> tuple[Peer, Peer]:
        near, far = await pair(loop)
        near.wire.abort()
        await asyncio.sleep(1)
        return near, far

    near, far = virtual.run(main)
    assert (near.seen, far.seen) == ([None], [ConnectionResetError])


def test_a_writer_faster_than_its_reader_is_paused() -> None:
    async def main(loop: VirtualLoop) -> tuple[Peer, Peer]:
        near, far = await pair(loop)
        far.wire.pause_reading()
        near.wire.write(b"x" * 100_000)
        await asyncio.sleep(1)
        assert (near.seen, far.seen, near.wire.get_write_buffer_size()) == (["pause"], [], 100_000)
        far.wire.resume_reading()
        await asyncio.sleep(1)
        return near, far

    near, far = virtual.run(main)
    assert (near.seen, far.seen) == (["pause", "resume"], [b"x" * 100_000])


def test_a_refused_connection_and_an_unanswered_one() -> None:
    async def main(loop: VirtualLoop) -> None:
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Peer, "far", 80)
        listener = loop.network.listen(Peer, ("far", 80))
        listener.reach = "silent"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.create_connection(Peer, "far", 80), 5.0)
        listener.reach = "up"
        await loop.create_connection(Peer, "far", 80)

    virtual.run(main)
