"""A key file that changes under a running gateway."""

import asyncio
from pathlib import Path

from tests.support.processes import gateway, minimal
from tests.support.upstreams import upstream


async def test_a_rotated_secret_is_used_without_a_restart_and_without_a_failed_request(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("sk-first-one\n")
    async with upstream() as server:
        pool = {"name": "main", "endpoints": [server.url], "key": "file:secret.txt", "key_header": "api-key"}
        models = [{"name": "chat", "routes": [{"to": "main"}]}]
        async with gateway(tmp_path, minimal(server.url, pools=[pool], models=models)) as running:
            key = await running.key()
            assert (await running.chat(key))[0] == 200
            (tmp_path / "next").write_text("sk-second-one\n")
            (tmp_path / "next").replace(secret)
            async with asyncio.timeout(300):
                while server.headers[-1]["api-key"] != "sk-second-one":
                    assert (await running.chat(key))[0] == 200
            assert (await running.chat(key))[0] == 200
            log = (tmp_path / "access.log").read_text()
    keys = [headers["api-key"] for headers in server.headers]
    assert keys == ["sk-first-one"] * keys.count("sk-first-one") + ["sk-second-one"] * keys.count("sk-second-one")
    assert all("authorization" not in headers for headers in server.headers)
    assert "sk-first-one" not in running.output + log
    assert "sk-second-one" not in running.output + log
