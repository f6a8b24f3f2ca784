"""A gateway whose database and access log lie on a disk that fills up and is freed again."""

import asyncio
import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.test_operations import configuration
from tests.support.processes import GatewayProcess, starting_gateway
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(1800)
MOUNT = 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"'


def on_a_small_disk(folder: Path) -> list[str]:
    """The prefix of a command that mounts a disk of 2 MiB on `folder`, visible to the command only."""
    unshare = shutil.which("unshare")
    assert unshare is not None, "util-linux is needed for a small disk"
    return [unshare, "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(folder)]


class Disk:
    """The small disk as its process sees it, from outside."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._folder = Path(f"/proc/{pid}/root{folder}")
        self._ballast = self._folder / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            for size in (65536, 1):  # to the last byte
                while True:
                    try:
                        file.write(b"x" * size)
                    except OSError:
                        break

    def free(self) -> None:
        self._ballast.unlink()

    def lines(self, name: str) -> list[bytes]:
        return (self._folder / name).read_bytes().splitlines()


async def create_key(g: GatewayProcess) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as http, http.post(f"{g.admin}/admin/tenants/acme/keys", json={}) as response:
        return response.status, await response.json()


async def chats(g: GatewayProcess, key: str, count: int) -> set[int]:
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http:

        async def chat() -> int:
            async with http.post(f"{g.url}/v1/chat/completions", json=body) as response:
                return response.status

        return set(await asyncio.gather(*(chat() for _ in range(count))))


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_full_disk_costs_log_lines_and_new_keys_until_it_has_room(workers: int, tmp_path: Path) -> None:
    disk_folder = tmp_path / "disk"
    disk_folder.mkdir()
    async with upstream() as up:
        written = configuration(
            up,
            workers=workers,
            state={"database": f"sqlite:///{disk_folder}/state.db"},
            access_log={"to": str(disk_folder / "access.log")},
        )
        async with starting_gateway(tmp_path, written, behind=on_a_small_disk(disk_folder)) as g:
            await g.listens()
            disk = Disk(g.process.pid, disk_folder)
            status, made = await create_key(g)
            assert status == 201
            key = made["key"]
            while await chats(g, key, 10) != {200}:  # until every worker has the key
                await asyncio.sleep(0.05)

            disk.fill()
            async with asyncio.timeout(300):  # what SQLite has allocated may still take a key or two
                while (refused := await create_key(g))[0] == 201:
                    await asyncio.sleep(0)
            status, error = refused
            assert status == 503, error
            assert "Traceback" not in json.dumps(error)
            while "access log: lines are lost" not in g.output:
                assert await chats(g, key, 20) == {200}
            g.process.send_signal(signal.SIGHUP)
            await g.printed("configuration reloaded")
            assert await chats(g, key, 20) == {200}

            disk.free()
            async with asyncio.timeout(300):
                while (made_again := await create_key(g))[0] != 201:
                    await asyncio.sleep(0.05)
            while await chats(g, made_again[1]["key"], 10) != {200}:
                await asyncio.sleep(0.05)
            await g.printed("access log: written again")
            assert await chats(g, key, 20) == {200}
            assert g.output.count("lines are lost") <= workers
            torn = [line for line in disk.lines("access.log") if not (line.startswith(b"{") and line.endswith(b"}"))]
            assert len(torn) <= workers
            assert os.listdir(disk_folder) == []  # all of it was on the small disk


async def lost_records(g: GatewayProcess) -> float:
    """The value of the metric of records that the disk had no room for."""
    async with aiohttp.ClientSession() as http, http.get(f"{g.admin}/metrics") as response:
        text = await response.text()
    return sum(
        float(value) for value in re.findall(r'^headrace_request_records_lost_total\{reason="disk"\} (\S+)', text, re.M)
    )


async def stored_requests(g: GatewayProcess) -> tuple[int, int]:
    """The status of a search, and the number of requests on its page."""
    async with aiohttp.ClientSession() as http, http.get(f"{g.admin}/admin/requests?limit=1000") as response:
        return response.status, len((await response.json()).get("requests", ()))


async def test_a_full_disk_under_the_records_costs_records_alone(tmp_path: Path) -> None:
    disk_folder = tmp_path / "disk"
    disk_folder.mkdir()
    async with upstream() as up:
        written = configuration(
            up,
            workers=2,
            state={"database": f"sqlite:///{disk_folder}/state.db"},
            requests={"folder": str(disk_folder / "spool"), "flush": "1s"},
        )
        async with starting_gateway(tmp_path, written, behind=on_a_small_disk(disk_folder)) as g:
            await g.listens()
            disk = Disk(g.process.pid, disk_folder)
            key = (await create_key(g))[1]["key"]
            async with asyncio.timeout(300):
                while await chats(g, key, 10) != {200}:
                    await asyncio.sleep(0.05)
                while (await stored_requests(g))[1] < 10:
                    await asyncio.sleep(0.05)

            disk.fill()
            async with asyncio.timeout(300):
                while not await lost_records(g):
                    assert await chats(g, key, 20) == {200}
            assert (await stored_requests(g))[0] in (200, 503)
            await g.printed("No space left on device")

            disk.free()
            async with asyncio.timeout(300):
                _, before = await stored_requests(g)
                while (await stored_requests(g))[1] <= before:
                    assert await chats(g, key, 1) == {200}
            assert os.listdir(disk_folder) == []
