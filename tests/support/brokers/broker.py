"""A real broker, and a client of the test's own."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any, NamedTuple


class Seen(NamedTuple):
    """A message that a test has read."""

    body: bytes
    headers: Mapping[str, str]
    key: bytes = b""


class RealBroker:
    """`start`, `topics`, `send`, `read`, `close`. A subclass is one kind of broker."""

    url = ""
    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    async def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)  # noqa: ASYNC220
        async with asyncio.timeout(300):
            while not self._accepts():
                assert self._process.poll() is None, (self.folder / f"{self.name}.log").read_text()[-2000:]
                await asyncio.sleep(0.02)
        await self.connect()

    def _accepts(self) -> bool:
        return accepts(self.port)

    def kill(self) -> None:
        """Kill the server at once."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def signal(self, number: int) -> None:
        """Signal the server."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def connect(self) -> None:
        """Open the test's own client."""

    async def disconnect(self) -> None:
        """Close the test's own client."""

    async def topics(self, *names: str) -> None:
        """Create topics."""

    async def send(self, topic: str, body: bytes, headers: Mapping[str, str], key: bytes = b"") -> None:
        """Publish a message. Header names have the prefix `ce_`."""
        raise NotImplementedError

    async def read(self, topic: str, count: int) -> list[Seen]:
        """Wait until a topic has `count` messages, and return all of them from the first one."""
        async with asyncio.timeout(300):
            while len(messages := await self.messages(topic)) < count:
                await asyncio.sleep(0.05)
        return messages

    async def messages(self, topic: str) -> list[Seen]:
        """All messages of a topic."""
        raise NotImplementedError

    async def unsettled(self, topic: str, group: str) -> int:
        """Messages that the group has not settled, as the broker reports."""
        raise NotImplementedError

    async def settled(self, topic: str, group: str = "headrace") -> None:
        """Wait until the group has settled all messages of a topic, for five minutes after the last progress."""
        loop, fewest = asyncio.get_running_loop(), inf
        async with asyncio.timeout(300) as bound:
            while True:
                began = loop.time()
                count = await self.unsettled(topic, group)
                if not count:
                    return
                if count < fewest:
                    fewest = count
                    bound.reschedule(loop.time() + 300)
                await asyncio.sleep(max(0.05, 3 * (loop.time() - began)))  # a look is work for the broker

    async def close(self) -> None:
        await self.disconnect()
        self.kill()


def accepts(port: int) -> bool:
    """Whether something listens on a port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cloud_event(id: str, source: str = "/tests", **attributes: Any) -> dict[str, str]:
    """The headers of an event."""
    made = {"specversion": "1.0", "id": id, "source": source, "type": "request", **attributes}
    return {f"ce_{name}": str(value) for name, value in made.items()}
