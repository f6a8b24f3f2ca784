"""A key file that changes under a running gateway."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.processes import gateway
from tests.support.upstreams import upstream


async def chat(url: str, key: str) -> int:
    body: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
    headers = {"authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response,
    ):
        await response.read()
        return response.status


async def test_a_rotated_secret_is_used_without_a_restart_and_without_a_failed_request(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("sk-first-one\n")
    async with upstream() as server:
        configuration = {
            "pools": [{"name": "main", "endpoints": [server.url], "key": "file:secret.txt", "key_header": "api-key"}],
            "models": [{"name": "chat", "routes": [{"to": "main"}]}],
            "tenants": [{"name": "acme", "models": ["chat"]}],
        }
        async with gateway(tmp_path, configuration) as running:
            key = await running.key()
            assert await chat(running.url, key) == 200
            (tmp_path / "next").write_text("sk-second-one\n")
            (tmp_path / "next").replace(secret)
            async with asyncio.timeout(300):
                while server.headers[-1]["api-key"] != "sk-second-one":
                    assert await chat(running.url, key) == 200
            assert await chat(running.url, key) == 200
            log = (tmp_path / "access.log").read_text()
    keys = [headers["api-key"] for headers in server.headers]
    assert keys == ["sk-first-one"] * keys.count("sk-first-one") + ["sk-second-one"] * keys.count("sk-second-one")
    assert all("authorization" not in headers for headers in server.headers)
    assert "sk-first-one" not in running.output + log
    assert "sk-second-one" not in running.output + log
