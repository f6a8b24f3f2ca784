"""Rounds that an outage ends, and stores that open at their first use."""

import asyncio
import threading

import pytest

from gateway.state.errors import StoreUnavailable
from gateway.state.insist import Outages
from gateway.state.opened import Opened
from gateway.state.rounds import Rounds
from tests.support.waiting import until


async def test_rounds_go_on_through_an_outage() -> None:
    loop, begun = asyncio.get_running_loop(), list[float]()
    outages, running = Outages("usage"), 0

    async def work() -> None:
        nonlocal running
        running += 1
        assert running == 1, "one round at a time"
        begun.append(loop.time())
        await asyncio.sleep(0.25)
        running -= 1
        if len(begun) in (2, 3):
            raise StoreUnavailable("gone")

    rounds = Rounds(outages, "writing", work, lambda: 1.0)
    task = asyncio.create_task(rounds.run())
    await until(lambda: not outages.available)
    await until(lambda: outages.available)
    await asyncio.gather(rounds(), rounds())
    task.cancel()
    assert begun[:4] == pytest.approx([begun[0] + 1.25 * number for number in range(4)])


async def test_a_defect_ends_the_rounds() -> None:
    async def work() -> None:
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        await Rounds(Outages("usage"), "writing", work, lambda: 1.0, at_once=True).run()


class Store:
    """Counts the open ones."""

    open = 0

    def __init__(self) -> None:
        Store.open += 1

    def close(self) -> None:
        Store.open -= 1


def test_a_store_is_opened_once_and_again_after_an_error() -> None:
    errors = [StoreUnavailable("gone")]

    def make() -> Store:
        if errors:
            raise errors.pop()
        return Store()

    store = Opened(make)
    store.close()
    with pytest.raises(StoreUnavailable):
        store()
    assert not store
    threads = [threading.Thread(target=store) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (bool(store), Store.open) == (True, 1)
    store.close()
    assert (bool(store), Store.open) == (False, 0)


async def test_a_start_waits_for_a_first_round_for_a_bounded_time(caplog: pytest.LogCaptureFixture) -> None:
    outages, going, done = Outages("limits"), asyncio.Event(), 0

    async def work() -> None:
        nonlocal done
        await going.wait()
        done += 1
        if done == 2:
            raise LookupError("a defect")

    rounds = Rounds(outages, "reading", work, lambda: 1.0)
    await rounds.within(10)
    assert outages.failing == {"reading": "the database does not answer"}
    going.set()
    await asyncio.sleep(0.01)
    assert (done, outages.available) == (1, True)
    await rounds.within(10)
    assert (done, outages.failing) == (2, {"reading": "a defect"})
    assert "LookupError" in caplog.text
