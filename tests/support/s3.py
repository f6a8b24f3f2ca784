"""A real S3 server of the test's own: SeaweedFS."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import SecretStr

from config.schema.batches import S3Config
from gateway.features.batches.s3.client import S3Client
from gateway.features.batches.storage import StorageError

TRIES = 3
"""Starts of the server: between the choice of its ports and their use, another process may take them."""
KEY_ID, SECRET, BUCKET = "headrace", "a-secret-of-the-test", "bucket"


class S3Server:
    """A server on loopback, with one bucket and one key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def config(self) -> S3Config:
        return S3Config(endpoint=self.url, key_id=SecretStr(KEY_ID), secret=SecretStr(SECRET))

    @property
    def section(self) -> dict[str, object]:
        """The section `batches` of a configuration, with secrets from the environment."""
        s3 = {"endpoint": self.url, "key_id": "${S3_KEY_ID}", "secret": "${S3_SECRET}"}
        return {"storage": f"s3://{BUCKET}/some/prefix", "s3": s3, "commit": "200ms"}

    async def start(self) -> None:
        """Start, create the bucket, and wait until it answers."""
        identity = {
            "identities": [
                {
                    "name": "tests",
                    "credentials": [{"accessKey": KEY_ID, "secretKey": SECRET}],
                    "actions": ["Admin", "Read", "Write", "List", "Tagging"],
                }
            ]
        }
        settings = self._folder / "s3.json"
        settings.write_text(json.dumps(identity))
        data = self._folder / "s3"
        data.mkdir(exist_ok=True)
        for left in range(TRIES - 1, -1, -1):
            self._launch(data, settings)
            async with asyncio.timeout(300):
                if await self._answers():
                    return
            assert left, (self._folder / "s3.log").read_text()[-2000:]

    def _launch(self, data: Path, settings: Path) -> None:
        ports = free_ports(6)
        self.url = f"http://127.0.0.1:{ports[0]}"
        names = ("-s3.port", "-master.port", "-volume.port", "-filer.port", "-s3.port.iceberg", "-s3.port.lance")
        program = str(Path(sys.executable).with_name("weed"))
        options = [f"{name}={port}" for name, port in zip(names, ports, strict=True)]
        fixed = ["-s3", "-ip=127.0.0.1", f"-dir={data}", f"-s3.config={settings}", "-master.telemetry=false"]
        with (self._folder / "s3.log").open("wb") as log:
            self._process = subprocess.Popen([program, "server", *fixed, *options], stdout=log, stderr=log)

    async def _answers(self) -> bool:
        """Wait until it answers; False if its process has ended."""
        assert self._process is not None
        client = S3Client(self.config, BUCKET)
        while not await asyncio.to_thread(_created, client):
            if self._process.poll() is not None:
                return False
            await asyncio.sleep(0.2)
        return True

    def signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def close(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()


def _created(client: S3Client) -> bool:
    try:
        client.send("PUT", "")
        client.send("PUT", "probe", body=b"1")
    except StorageError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Ports that are free now, also 10,000 above, where SeaweedFS listens for gRPC."""
    ports = list[int]()
    while len(ports) < count:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            if not 10_000 < port < 50_000 or port in ports:
                continue
            try:
                other.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            ports.append(port)
    return ports


@asynccontextmanager
async def s3_server(folder: Path) -> AsyncIterator[S3Server]:
    made = S3Server(folder)
    try:
        await made.start()
        yield made
    finally:
        made.close()
