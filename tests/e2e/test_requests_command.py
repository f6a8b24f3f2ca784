"""`headrace requests` against a running gateway."""

import asyncio
import json
from pathlib import Path

from typer.testing import CliRunner

from gateway.features.requests.cli import app
from tests.support.processes import gateway
from tests.support.request_records import configuration, until_stored
from tests.support.upstreams import upstream
from tests.support.usage import ask


async def test_requests_are_listed_and_shown_on_a_terminal(tmp_path: Path) -> None:
    async def run(*arguments: str) -> tuple[int, str, str]:
        result = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--url", g.admin])
        return result.exit_code, result.stdout, result.stderr

    async with upstream() as up, gateway(tmp_path, configuration(up.url, 1)) as g:
        assert await ask(g, await g.key(), 43) == 40
        await until_stored(g, 43)
        status, output, _ = await run("list", "--status", "429", "--json")
        refused = [json.loads(line) for line in output.splitlines()]
        assert (status, [row["status"] for row in refused]) == (0, [429] * 3)
        status, output, _ = await run("list", "--limit", "7", "--status", "2xx", "--tenant", "acme")
        head, *lines = output.splitlines()
        assert head.split()[:3] == ["time", "id", "tenant"]
        assert len(lines) == 7
        status, _, error = await run("list", "--user", "zoe")
        assert (status, "users: N" in error) == (1, True)
        status, output, _ = await run("show", refused[0]["id"])
        assert (status, json.loads(output)["code"]) == (0, refused[0]["code"])
        status, _, error = await run("show", "absent")
        assert (status, "no request with this id" in error) == (1, True)
        status, _, error = await run("list", "--status", "many")
        assert (status, "status: " in error) == (1, True)
    status, _, error = await run("list")
    assert (status, g.admin in error) == (1, True)
