"""The pulls of repositories go on, whatever fails in one of them."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from adapters.stores import cache
from config.stores import address_of
from runtimes.tensor import stores
from runtimes.tensor.stores import NOWHERE, Stores, stores_of


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """The only repository has always arrived."""

    async def pull(_: object, address: str) -> dict[str, Any]:
        return {"view": str(tmp_path), "files": 1, "size": 1, "transferred": 1, "seconds": 0.0, "error": ""}

    monkeypatch.setattr("runtimes.tensor.stores._Puller.pull", pull)
    _, pulled = stores_of([address_of("https://models.example.com/m.tar.gz")])
    return Stores(pulled, stores.StoreOptions(tmp_path, 1 << 20, {}))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_view_that_cannot_be_held_is_a_failed_pull_and_the_next_one_holds_it(
    followed: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True
    real = cache.use

    def use(view: Path) -> IO[str] | None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(view)

    monkeypatch.setattr(stores, "use", use)
    (store,) = followed.stores
    following = asyncio.create_task(followed.follow(0.001))
    await until(lambda: store.failures > 2)
    assert store.problem == "the lock of its files: No space left on device"
    assert store.root.path == NOWHERE
    full = False
    await until(lambda: store.root.path == tmp_path)
    await until(lambda: not store.problem)
    following.cancel()
    await asyncio.wait([following])
    assert following.cancelled()
    await followed.aclose()


async def test_an_unexpected_error_is_reported_and_the_pulls_begin_again(
    followed: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [ZeroDivisionError(), ZeroDivisionError()]
    real = Stores.report

    def report(self: Stores) -> None:
        if errors:
            raise errors.pop()
        real(self)

    monkeypatch.setattr(Stores, "report", report)
    (store,) = followed.stores
    following = asyncio.create_task(followed.follow(0.001))
    await until(lambda: not errors and store.root.path == tmp_path)
    assert not following.done()
    assert caplog.text.count("ZeroDivisionError") == 2
    following.cancel()
    await asyncio.wait([following])
    await followed.aclose()


@pytest.mark.processes
@pytest.mark.parametrize("line", ["no result", "[]", "{}", "x" * 100_000])
async def test_a_line_that_is_no_result_ends_the_pull(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "junk.py").write_text(f"import time\nprint({line!r}, flush=True)\ntime.sleep(600)\n")
    monkeypatch.setattr(stores, "_MODULE", "junk")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    puller = stores._Puller(stores.StoreOptions(tmp_path / "cache", 1 << 20, environment))
    assert "has ended with status -9" in (await puller.pull("https://example.org/m.tar.gz"))["error"]
    await puller.aclose()
