"""`headrace top` beside a real gateway: one frame, and the live screen of a terminal."""

import asyncio
import os
import pty
import re
import signal
import sys
from pathlib import Path

from tests.support.processes import command, gateway, minimal
from tests.support.traffic import traffic
from tests.support.upstreams import upstream


async def test_the_screen_shows_a_running_gateway(tmp_path: Path) -> None:
    async with upstream() as up:
        async with gateway(tmp_path, minimal(up.url, workers=2)) as g:
            async with traffic(g.url, await g.key(), clients=1):
                status, frame, _ = await command("top", "--once", "--url", g.admin)
            assert status == 0, frame
            assert frame.startswith("serving")
            assert re.search(rf"up\s+{up.url}\s+healthy\s+closed", frame)
            assert re.search(r"chat\s+[1-9]\d*\.\d\s+0\.0\s+≤ ", frame)
            assert re.search(r"acme\s+[1-9]", frame)
            assert await live_screen(g.admin, up.url)
        status, _, error = await command("top", "--once", "--url", g.admin)
        assert (status, "/admin/state" in error) == (1, True)


async def live_screen(url: str, expected: str) -> bool:
    """Whether a terminal shows a text, and the program ends in order by Ctrl-C."""
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "top", "--url", url, "--every", "0.2"),
        stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "50"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    async with asyncio.timeout(300):
        while expected.encode() not in shown:
            shown += await asyncio.to_thread(os.read, ours, 65_536)
    process.send_signal(signal.SIGINT)

    def rest() -> None:
        while True:
            try:
                os.read(ours, 65_536)
            except OSError:  # the terminal of a process that has ended
                return

    reading = asyncio.create_task(asyncio.to_thread(rest))
    status = await process.wait()
    await reading
    os.close(ours)
    return status == 0


async def test_an_address_of_no_gateway_is_an_error() -> None:
    async with upstream() as up:
        status, _, error = await command("top", "--once", "--url", up.url)
    assert status == 1
    assert "Traceback" not in error
