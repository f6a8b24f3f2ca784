"""A reload that is cancelled closes what it has prepared."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.process.app import Gateway
from tests.support.gateways import config

pytestmark = pytest.mark.realtime  # the state database has threads


async def test_a_reload_that_waits_for_the_usage_of_its_limits_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = config(
        listen={"http": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        state={"database": f"sqlite:///{tmp_path}/state.db"},
        access_log={"to": "/dev/null"},
    )
    gateway = Gateway(tmp_path / "headrace.yaml", made)
    begins, abandoned = asyncio.Event(), list[Any]()

    async def wait(*_: object) -> None:
        begins.set()
        await asyncio.Future[None]()

    try:
        await gateway.start()
        monkeypatch.setattr(gateway.plane.features, "begin_limits", wait)
        monkeypatch.setattr(gateway.plane.fleet, "abandon", abandoned.append)
        reload = asyncio.create_task(gateway.reload(made))
        await begins.wait()
        reload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reload
        assert len(abandoned) == 1
    finally:
        await gateway.aclose()
