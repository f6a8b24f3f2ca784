"""A gateway whose database and access log lie on a disk that fills up and is freed again."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.processes import GatewayProcess, minimal, starting_gateway
from tests.support.small_disk import Disk, on_a_small_disk
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(1800)


async def chats(g: GatewayProcess, key: str, count: int) -> set[int]:
    """The statuses of so many chats at once."""
    return {status for status, _ in await asyncio.gather(*(g.chat(key) for _ in range(count)))}


async def test_a_full_disk_costs_log_lines_and_new_keys_until_it_has_room(tmp_path: Path) -> None:
    disk_folder, keys = tmp_path / "disk", "/admin/tenants/acme/keys"
    disk_folder.mkdir()
    async with upstream() as up:
        written = minimal(
            up.url,
            workers=2,
            state={"database": f"sqlite:///{disk_folder}/state.db"},
            access_log={"to": str(disk_folder / "access.log")},
        )
        async with starting_gateway(tmp_path, written, behind=on_a_small_disk(disk_folder)) as g:
            await g.listens()
            disk = Disk(g.process.pid, disk_folder)
            status, made = await g.administer("POST", keys, {})
            assert status == 201
            async with asyncio.timeout(300):
                while await chats(g, made["key"], 10) != {200}:  # until every worker has the key
                    await asyncio.sleep(0.05)

                disk.fill()
                # What SQLite has allocated may still take a key or two.
                while (refused := await g.administer("POST", keys, {}))[0] == 201:
                    await asyncio.sleep(0)
            status, error = refused
            assert status == 503, error
            assert "Traceback" not in json.dumps(error)
            while "access log: lines are lost" not in g.output:
                assert await chats(g, made["key"], 20) == {200}
            g.process.send_signal(signal.SIGHUP)
            await g.printed("configuration reloaded")
            assert await chats(g, made["key"], 20) == {200}

            disk.free()
            async with asyncio.timeout(300):
                while (again := await g.administer("POST", keys, {}))[0] != 201:
                    await asyncio.sleep(0.05)
                while await chats(g, again[1]["key"], 10) != {200}:
                    await asyncio.sleep(0.05)
            await g.printed("access log: written again")
            assert await chats(g, made["key"], 20) == {200}
            assert g.output.count("lines are lost") <= 2
            torn = [line for line in disk.lines("access.log") if not (line.startswith(b"{") and line.endswith(b"}"))]
            assert len(torn) <= 2
            assert os.listdir(disk_folder) == []  # all of it was on the small disk
