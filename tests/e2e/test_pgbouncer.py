"""PgBouncer in transaction mode before Postgres: no statement may need the connection of the one before it."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from loadtests.servers import free_ports
from tests.support.batches import batched, chat_line, client, counts, submitted, until_ended
from tests.support.debian import binary
from tests.support.postgres import Postgres
from tests.support.processes import gateway
from tests.support.upstreams import upstream
from tests.support.usage import ask, reported

pytestmark = pytest.mark.timeout(1800)


@contextlib.contextmanager
def pgbouncer(folder: Path, url: str) -> Iterator[str]:
    """Two connections to the database of `url`, shared after each transaction. Yields its own URL."""
    program = binary("pgbouncer", "pgbouncer", "/usr/sbin")
    name, _, host = url.partition("@/")[2].partition("?host=")
    (port,) = free_ports(1)
    file = folder / "pgbouncer.ini"
    file.write_text(
        f"[databases]\n* = host={host}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        "auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 200\n"
        f"ignore_startup_parameters = extra_float_digits\nlogfile = {folder}/pgbouncer.log\n"
    )
    folder.chmod(0o755)
    command = [program, str(file)]
    as_root = os.geteuid() == 0
    process = subprocess.Popen(command, user="postgres" if as_root else None, stdout=subprocess.DEVNULL,
                               stderr=(folder / "stderr").open("wb"))  # fmt: skip
    try:
        yield f"postgresql://headrace@127.0.0.1:{port}/{name}"
    finally:
        process.terminate()
        process.wait(60)


async def until_connected(url: str) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                await asyncio.to_thread(lambda: psycopg.connect(url).close())
                return
            await asyncio.sleep(0.05)


async def test_keys_usage_requests_and_batches_share_two_connections(tmp_path: Path) -> None:
    folder = tmp_path / "pgbouncer"
    folder.mkdir()
    postgres = await asyncio.to_thread(Postgres)
    try:
        await asyncio.to_thread(postgres.start)
        with pgbouncer(folder, postgres.database()) as url:
            await until_connected(url)
            async with upstream() as up:
                settings = batched(up, tmp_path, workers=2, state={"database": url}, requests={"flush": "100ms"})
                async with gateway(tmp_path, settings) as g:
                    key = await g.key()
                    assert await ask(g, key, 60) == 60
                    batch = await until_ended(client(g, key), await submitted(client(g, key), [chat_line("a")]))
                    assert (batch.status, batch.request_counts) == ("completed", counts(1, 1, 0))
                    async with asyncio.timeout(300):
                        while not (rows := (await reported(g, tenant="acme"))[1]["usage"]) or rows[0]["requests"] < 61:
                            await asyncio.sleep(0.05)
                    assert rows[0]["requests"] == 61
                    async with asyncio.timeout(300):
                        while (
                            len((await g.administer("GET", "/admin/requests?tenant=acme&limit=100"))[1]["requests"])
                            < 60
                        ):
                            await asyncio.sleep(0.05)
    finally:
        await asyncio.to_thread(postgres.remove)
