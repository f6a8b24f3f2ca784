"""Model servers in processes of their own, to be killed."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tests.support import mortal_server


class Mortal:
    """A model server in a separate process, which is killed and restarted at the same address."""

    def __init__(self) -> None:
        self.port = 0
        self.process: asyncio.subprocess.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """It listens on return."""
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-S", mortal_server.__file__, str(self.port), stdout=asyncio.subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.port = int(await self.process.stdout.readline())

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def mortals(count: int) -> AsyncIterator[list[Mortal]]:
    made = [Mortal() for _ in range(count)]
    async with AsyncExitStack() as ends:
        for mortal in made:
            await mortal.start()
            ends.push_async_callback(mortal.kill)
        yield made
