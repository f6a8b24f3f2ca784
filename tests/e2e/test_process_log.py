"""The log of a real gateway with workers: each line is an object, and a reload changes level and form everywhere."""

import json
from pathlib import Path

from tests.support.processes import gateway, minimal
from tests.support.upstreams import upstream


async def test_every_process_logs_as_the_file_demands(tmp_path: Path) -> None:
    async with upstream() as up:
        settings = minimal(up.url, workers=2, log={"format": "json"})
        async with gateway(tmp_path, settings, forked=False) as g:
            await g.until_ready(2)
            g.rewrite(log={"format": "text", "level": "debug"})
            await g.printed(r" INFO \S+ configuration reloaded from")
            lines = [line for line in g.output.splitlines() if line.startswith("{")]
            processes = {json.loads(line).get("process", "") for line in lines}
            assert processes >= {"", "worker-0", "worker-1"}
            assert {json.loads(line)["level"] for line in lines} <= {"info", "warning"}
