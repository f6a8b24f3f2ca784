"""A real OpenTelemetry collector (rotel) of the test's own, which prints the spans that it receives."""

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from importlib.resources import files
from pathlib import Path


class RotelCollector:
    """A running collector."""

    def __init__(self, http: str, grpc: str, log: Path) -> None:
        self.http, self.grpc = http, grpc
        """URLs of the receivers, as `traces.to` has them."""
        self._log = log

    async def until(self, condition: Callable[[str], object]) -> str:
        """Wait for what it prints."""
        async with asyncio.timeout(300):
            while not condition(text := self._log.read_text(errors="replace")):
                await asyncio.sleep(0.05)
        return text


@asynccontextmanager
async def rotel(folder: Path, to: str = "") -> AsyncIterator[RotelCollector]:
    """Start one on free ports. It forwards what it receives `to` the URL of another collector, over HTTP."""
    http, grpc = _free_port(), _free_port()
    log = folder / "rotel.log"
    command = [
        str(files("rotel") / "rotel-agent"), "start",
        "--otlp-http-endpoint", f"127.0.0.1:{http}", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}",
        "--debug-log", "traces", "--debug-log-verbosity", "detailed",
        *(("--exporter", "otlp", "--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint", to)
          if to else ("--exporter", "blackhole")),
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)  # noqa: ASYNC220
    try:
        async with asyncio.timeout(120):
            while not (_listens(http) and _listens(grpc)):
                assert process.poll() is None, log.read_text()
                await asyncio.sleep(0.05)
        yield RotelCollector(f"http://127.0.0.1:{http}", f"grpc://127.0.0.1:{grpc}", log)
    finally:
        process.terminate()
        process.wait(60)


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def _listens(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
