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
def pgbouncer(postgres: Postgres) -> Iterator[str]:
    """Two connections to a new database, shared after each transaction. Yields the URL that leads through them."""
    url = postgres.database()
    program = binary("pgbouncer", "pgbouncer", "/usr/sbin")
    name, _, host = url.partition("@/")[2].partition("?host=")
    (port,) = free_ports(1)
    file = Path(postgres.place("pgbouncer.ini"))  # where the user of the server can read it
    file.write_text(
        f"[databases]\n* = host={host} user=headrace\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        "auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 200\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    user = "postgres" if os.geteuid() == 0 else None
    with Path(postgres.place("pgbouncer.log")).open("wb") as log:
        process = subprocess.Popen([program, str(file)], user=user, stdout=log, stderr=log)
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
    postgres = await asyncio.to_thread(Postgres)
    try:
        await asyncio.to_thread(postgres.start)
        with pgbouncer(postgres) as url:
            await until_connected(url)
            async with upstream() as up:
                (tmp_path / "pepper").write_text("pepper-of-the-tests-" * 2)
                own = {"state": {"database": url}, "auth": {"pepper": "file:pepper"}, "requests": {"flush": "100ms"}}
                settings = batched(up, tmp_path, workers=2, **own)
                async with gateway(tmp_path, settings) as g:
                    key = await g.key()
                    assert await ask(g, key, 60) == 60
                    async with client(g, key) as sdk:
                        batch = await until_ended(sdk, await submitted(sdk, [chat_line("a")]))
                    assert (batch.status, batch.request_counts) == ("completed", counts(1, 1, 0))
                    async with asyncio.timeout(300):
                        while not (rows := (await reported(g, tenant="acme"))[1]["usage"]) or rows[0]["requests"] < 61:
                            await asyncio.sleep(0.05)
                    assert rows[0]["requests"] == 61
                    async with asyncio.timeout(300):
                        path = "/admin/requests?tenant=acme&limit=100"
                        while len((await g.administer("GET", path))[1]["requests"]) < 60:
                            await asyncio.sleep(0.05)
    finally:
        await asyncio.to_thread(postgres.remove)
