"""A real gateway with a low limit of open files: idle connections lock no client out, and its key database works."""

import asyncio
import resource
from pathlib import Path

import psutil
import pytest

from tests.adapters.http1.raw import Raw
from tests.support.processes import minimal, starting_gateway
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(1800)
FILES = 200
IDLE = 260


@pytest.mark.parametrize("workers", [1, 2])
async def test_more_idle_connections_than_files_harm_no_request(tmp_path: Path, workers: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * IDLE)), hard))
    limited = ["prlimit", f"--nofile=100:{FILES}"]
    async with upstream() as up, starting_gateway(tmp_path, minimal(up.url, workers=workers), behind=limited) as g:
        await g.listens()
        assert (await g.printed(r"serves at most (\d+) clients at once instead of"))[1] == "36"
        host, port = g.url.removeprefix("http://").split(":")
        idle = [Raw(*await asyncio.open_connection(host, int(port))) for _ in range(workers * IDLE)]
        await g.key()  # is in the database by now, and accepted by each worker
        for process in (each := psutil.Process(g.process.pid), *each.children(recursive=True)):
            assert process.num_fds() < FILES
        for client in idle:
            client.close()
        assert (await g.state())["in_flight"] == 0
        assert "Too many open files" not in g.output
