"""What docs/failures.md tells the on-call to type works as it stands, and shows what the page promises."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapters.http1.message import Response
from tests.support.page_commands import Shell, commands, section, yaml_blocks
from tests.support.processes import GatewayProcess, command, gateway
from tests.support.upstreams import stream, upstream, whole

PAGE = Path("docs/failures.md")
SETTINGS = yaml.safe_load(yaml_blocks(PAGE.read_text())[0])
TITLES = (
    "401", "403", "404", "429", "502 and 504", "503", "Slow", "Streams break", "High memory",
    "A start or a change fails",
)  # fmt: skip


FIRST = commands(PAGE.read_text())[2:4]
"""The commands that stand before all symptoms."""


class Night:
    """A gateway in which each symptom of the page has occurred."""

    def __init__(self, running: GatewayProcess, shell: Shell) -> None:
        self.running = running
        self.shell = shell

    async def typed(self, heading: str) -> list[str]:
        """The outputs of the commands of a section."""
        return [(await self.shell.run(line)).out for line in commands(section(PAGE, heading))]


async def answer(body: dict[str, Any]) -> Response:
    if body["messages"][0]["content"] == "fail":
        return Response(500, [("content-type", "application/json")], b'{"error": {"message": "CUDA out of memory"}}')
    return stream("Hello there") if body.get("stream") else whole("Hello there")


async def occurred(g: GatewayProcess, key: str, other: str) -> str:
    """Each symptom once; the id of the request that the server failed."""
    issue = ("keys", "create", "--tenant", "acme", "--config", str(g.config))
    scoped = (await command(*issue, "--fronts", "embeddings"))[1]
    await g.until_status(scoped.strip(), 403)
    revoked = (await command(*issue))[1].strip()
    await g.until_status(revoked, 200)
    await command("keys", "revoke", revoked.split("-")[1], "--config", str(g.config))
    await g.until_refused(revoked)
    assert (await g.chat(revoked))[0] == 401
    assert (await g.chat(key, model="nothing"))[0] == 404
    assert (await g.chat(other))[0] == 200
    assert (await g.chat(other))[0] == 429
    assert (await g.chat(key, messages=[{"role": "user", "content": "fail"}]))[0] == 502
    assert (await g.chat(key, model="away"))[0] == 503
    async with asyncio.timeout(300):
        while True:
            stored = {row["status"]: row["id"] for row in (await g.administer("GET", "/admin/requests"))[1]["requests"]}
            if stored.keys() >= {403, 404, 429, 502, 503}:
                return str(stored[502])
            await asyncio.sleep(0.05)


@pytest.fixture
async def night(tmp_path: Path) -> AsyncIterator[Night]:
    written = {name: value for name, value in SETTINGS.items() if name not in ("listen", "access_log")}
    async with upstream() as up:
        up.behaviour = answer
        settings = {
            **written,
            "pools": [
                {"name": "vllm", "endpoints": [up.url]},
                {"name": "away", "endpoints": ["http://127.0.0.1:9"], "probe": {"interval": "50ms"}},
            ],
            "models": [*written["models"], {"name": "away", "routes": [{"to": "away"}]}],
            "tenants": [
                {"name": "acme", "models": ["chat", "away"]},
                {"name": "globex", "models": ["chat"], "limits": {"requests": "1/h"}},
            ],
        }
        async with gateway(tmp_path, settings) as g:
            key, other = await g.key(), await g.key("globex")
            await g.until("any(e['health'] == 'unhealthy' for e in s['endpoints'])")
            failed = await occurred(g, key, other)
            # The commands take the address from the file, and this gateway has chosen its port itself.
            typed = tmp_path / "typed.yaml"
            listen = {"listen": {"http": "127.0.0.1:0", "admin": g.admin.removeprefix("http://")}}
            typed.write_text(yaml.safe_dump({**yaml.safe_load(g.config.read_text()), **listen}))
            variables = {"CONFIG": str(typed), "ADMIN": g.admin, "GATEWAY": g.url, "SERVER": up.url}
            shell = Shell(tmp_path, **variables, KEY=key, ID=failed)
            yield Night(g, shell)


async def test_the_commands_of_every_symptom(night: Night) -> None:
    everything, of_one = [(await night.shell.run(line)).out for line in FIRST]
    assert "A client still uses the key" in everything
    assert "no request" not in of_one
    refused, keys, audit = await night.typed("## 401")
    assert '"cause":"revoked"' in refused
    assert " revoked " in keys
    assert "key.revoke" in audit
    requests, keys, meaning = await night.typed("## 403")
    assert "not_in_scope" in requests
    assert "fronts:embeddings" in keys
    assert "scopes" in meaning
    requests, explained, count = await night.typed("## 404")
    assert "model_not_found" in requests
    assert "goes to vllm" in explained
    assert int(count) >= 1
    requests, limits, usage = await night.typed("## 429")
    assert "rate_limit_exceeded" in requests
    assert json.loads(limits)
    assert usage.startswith("day ")
    requests, shown, server = await night.typed("## 502 and 504")
    assert "upstream_error" in requests
    assert json.loads(shown)["status"] == 502
    assert server.startswith("200 after 0.")
    pools, top, codes = await night.typed("## 503")
    states = [json.loads(line) for line in pools.splitlines()]
    assert {state["health"]: bool(state["probe_error"]) for state in states} == {"healthy": False, "unhealthy": True}
    assert "unhealthy" in top
    assert codes.split() == ["1", "no_healthy_endpoint"]
    shown, top, metrics = await night.typed("## Slow")
    assert json.loads(shown)["attempts"]
    assert "chat" in top
    assert "headrace_overhead_seconds_count" in metrics
    requests, lines, answered = await night.typed("## Streams break")
    assert "no_healthy_endpoint" in requests
    assert "upstream_error" in lines
    assert answered.endswith("data: [DONE]\n\n")
    held, top, requests = await night.typed("## High memory")
    assert "headrace_held_bytes_limit" in held
    assert top
    assert not requests
    checked, state, audit = await night.typed("## A start or a change fails")
    assert json.loads(state)["last_error"] == ""
    assert audit
    assert checked is not None


def test_every_command_stands_under_a_symptom_that_the_test_types() -> None:
    text = PAGE.read_text()
    typed = sum(len(commands(section(PAGE, f"## {title}"))) for title in TITLES)
    first = [line for line in commands(text) if line.startswith(("export ", "headrace why "))]
    assert typed + len(first) == len(commands(text))
    assert all(len(commands(section(PAGE, f"## {title}"))) == 3 for title in TITLES)
