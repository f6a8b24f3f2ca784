"""Operators and tenants' admins at a real gateway: keys, roles, and the audit log."""

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from gateway.auth.sealed import SealedKeys, SealedKeysRefused
from tests.support.postgres import Postgres
from tests.support.processes import GatewayProcess, command, gateway, minimal
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(1800)
TENANTS = [{"name": name, "models": ["*"]} for name in ("acme", "ops")]
PEPPER = "pepper-of-the-tests-" * 2


async def issue(g: GatewayProcess, *arguments: str) -> str:
    status, out, err = await command("keys", "create", "--config", str(g.config), *arguments)
    assert status == 0, err
    return out.strip()


class Client:
    """The admin listener of a gateway."""

    def __init__(self, g: GatewayProcess, http: aiohttp.ClientSession) -> None:
        self.g = g
        self._http = http

    async def admin(self, method: str, path: str, key: str = "", body: Any = None) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        url = f"{self.g.admin}{path}"
        sent = {} if body is None and method == "POST" else body
        async with self._http.request(method, url, json=sent, headers=headers) as response:
            return response.status, await response.json()


@asynccontextmanager
async def running(folder: Path, settings: dict[str, Any]) -> AsyncIterator[Client]:
    async with gateway(folder, settings) as g, aiohttp.ClientSession() as http:
        yield Client(g, http)


@pytest.mark.parametrize("workers", [1, 2])
async def test_state_counts_against_the_limits_and_the_quota_of_its_tenant(tmp_path: Path, workers: int) -> None:
    """Changes by a tenant-admin, files and conversations, in whichever process they are counted."""
    limits = {"requests": "6/h", "storage": "100KiB"}
    tenants = [{"name": "acme", "models": ["*"], "limits": limits}, {"name": "ops", "models": ["*"]}]
    auth = {"admin": {"required": True}}
    settings = minimal("http://127.0.0.1:9", auth=auth, tenants=tenants, workers=workers)
    async with running(tmp_path, settings) as c, aiohttp.ClientSession() as http:
        operator, admin = await asyncio.gather(
            issue(c.g, "--tenant", "ops", "--role", "operator"),
            issue(c.g, "--tenant", "acme", "--role", "tenant-admin"),
        )
        keys, talk = "/admin/tenants/acme/keys", {"items": [{"role": "user", "content": "x" * 60_000}]}
        async with asyncio.timeout(300):
            while (await c.admin("GET", keys, admin))[0] == 401:
                await asyncio.sleep(0.05)

        async def begun() -> tuple[int, str]:
            sent = {"authorization": f"Bearer {admin}"}
            async with http.post(f"{c.g.url}/v1/conversations", json=talk, headers=sent) as response:
                return response.status, ((await response.json()).get("error") or {}).get("code", "")

        async def answered() -> tuple[int, str]:
            """The answer of a process that knows the key."""
            while (answer := await begun())[0] == 401:
                await asyncio.sleep(0.05)
            return answer

        refused = (429, "storage_quota_exceeded")
        assert [await answered() for _ in range(3)] == [(200, ""), refused, refused]
        assert [(await c.admin("POST", keys, admin))[0] for _ in range(4)] == [201, 201, 201, 429]
        assert (await c.admin("POST", keys, operator))[0] == 201
        _, shown = await c.admin("GET", "/admin/tenants/acme", admin)
        assert 60_000 < shown["storage"]["used"] < shown["storage"]["quota"] == 100 * 1024


async def test_a_tenant_s_admin_manages_its_keys_and_all_of_it_is_on_record(tmp_path: Path) -> None:
    auth = {"admin": {"required": True}}
    async with upstream() as up, running(tmp_path, minimal(up.url, auth=auth, tenants=TENANTS)) as c:
        operator, admin = await asyncio.gather(
            issue(c.g, "--tenant", "ops", "--role", "operator"),
            issue(c.g, "--tenant", "acme", "--role", "tenant-admin"),
        )
        await asyncio.gather(c.g.until_status(operator, 200), c.g.until_status(admin, 200))
        assert (await c.admin("GET", "/admin/state"))[0] == 401
        assert (await c.admin("GET", "/admin/state", admin))[0] == 403
        assert (await c.admin("GET", "/readyz"))[0] == 200
        status, made = await c.admin("POST", "/admin/tenants/acme/keys", admin, {"label": "ci"})
        assert status == 201
        await c.g.until_status(made["key"], 200)
        status, new = await c.admin("POST", f"/admin/tenants/acme/keys/{made['id']}/rotate", admin, {"overlap": "1h"})
        assert status == 201
        await c.g.until_status(new["key"], 200)
        assert (await c.admin("DELETE", f"/admin/tenants/acme/keys/{made['id']}", admin))[0] == 200
        await c.g.until_status(made["key"], 401)
        _, tenant = await c.admin("GET", "/admin/tenants/acme", admin)
        _, listed = await c.admin("GET", "/admin/tenants/acme/keys", admin)
        assert (tenant["tenant"], len(listed["keys"]), listed["next"]) == ("acme", 3, None)
        assert (await c.admin("GET", "/admin/tenants/ops", admin))[0] == 403

        written = yaml.safe_load(c.g.config.read_text())
        written["drain"] = "1s"
        good = yaml.safe_dump(written, sort_keys=False)
        c.g.config.write_text(good)
        await c.g.printed("configuration reloaded")
        written["drian"] = "1s"
        c.g.config.write_text(yaml.safe_dump(written, sort_keys=False))
        await c.g.printed("not reloaded")
        c.g.config.write_text(good)
        assert await c.g.stop(signal.SIGTERM) == 0
        _, listed, _ = await command("audit", "list", "--json", "--config", str(c.g.config))
        entries = json.loads(listed)[::-1]
        outcomes = [(e["action"], e["outcome"]) for e in entries if not e["action"].startswith("GET")]
        assert [action for action, _ in outcomes if action.startswith("key.")] == ["key.create"] * 3 + [
            "key.rotate", "key.revoke",
        ]  # fmt: skip
        assert ("gateway.start", "done") in outcomes
        assert outcomes[-3:] == [("config.reload", "refused"), ("gateway.drain", "done"), ("gateway.stop", "done")]
        accepted = next(e for e in entries if e["action"] == "config.reload" and e["outcome"] == "done")
        assert accepted["detail"]["sha256"] == hashlib.sha256(good.encode()).hexdigest()
        refused = next(e for e in entries if e["action"] == "config.reload" and e["outcome"] == "refused")
        assert "drian" in refused["detail"]["error"]
        revoke = next(e for e in entries if e["action"] == "key.revoke")
        assert (revoke["actor"], revoke["role"], revoke["peer"]) == (admin.split("-")[1], "tenant-admin", "127.0.0.1")
        for secret in (operator, admin, made["key"], new["key"]):
            assert secret.split("-", 2)[2] not in listed + c.g.output
        assert (await command("audit", "verify", "--config", str(c.g.config)))[0] == 0


@pytest_asyncio.fixture
async def postgres() -> AsyncIterator[Postgres]:
    server = await asyncio.to_thread(Postgres)
    await asyncio.to_thread(server.start)
    yield server
    await asyncio.to_thread(server.remove)


async def test_valid_keys_work_while_postgres_is_away_and_revocation_counts_when_it_is_back(
    tmp_path: Path, postgres: Postgres
) -> None:
    (tmp_path / "pepper").write_text(PEPPER)
    settings = {"state": {"database": postgres.database()}, "auth": {"pepper": "file:pepper"}}
    async with upstream() as up, running(tmp_path, minimal(up.url, **settings, tenants=TENANTS)) as c:
        active, ended = await issue(c.g, "--tenant", "acme"), await issue(c.g, "--tenant", "acme")
        await asyncio.gather(c.g.until_status(active, 200), c.g.until_status(ended, 200))
        await asyncio.to_thread(postgres.crash)
        await c.g.printed("the current keys stay valid")
        assert {(await c.g.chat(key))[0] for key in (active, ended) * 10} == {200}
        assert (await c.admin("GET", "/readyz"))[0] == 200
        assert (await c.g.state())["key_database"]["available"] is False
        status, body = await c.admin("POST", "/admin/tenants/acme/keys")
        assert (status, body["error"]["code"]) == (503, "key_database_unavailable")
        await asyncio.to_thread(postgres.start)
        status, _, err = await command("keys", "revoke", ended.split("-")[1], "--config", str(c.g.config))
        assert status == 0, err
        await c.g.until_status(ended, 401)
        assert (await c.g.chat(active))[0] == 200
        assert (await c.g.state())["key_database"] == {"available": True}
        async with asyncio.timeout(300):
            while True:  # what was refused while it was away is on record too
                _, log = await c.admin("GET", "/admin/audit")
                with suppress(StopIteration):
                    failed = next(e for e in log["entries"] if e["outcome"] == "failed")
                    assert failed["detail"] == {"status": 503}
                    break
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("workers", [1, 2])
async def test_gateways_and_workers_start_while_postgres_is_away(
    tmp_path: Path, postgres: Postgres, workers: int
) -> None:
    (tmp_path / "pepper").write_text(PEPPER)
    database = postgres.database()
    sealed = SealedKeys(tmp_path / "local" / "keys.sealed", PEPPER.encode(), database)
    rollout = {"name": "r", "from": "up", "to": "new", "steps": [{"weight": "50%", "for": "1h"}]}

    async def is_sealed(key: str) -> None:
        async with asyncio.timeout(300):
            while True:
                with suppress(SealedKeysRefused):
                    if key.split("-")[1] in (await asyncio.to_thread(sealed.read))[0].records:
                        return
                await asyncio.sleep(0.05)

    async with upstream() as up, upstream() as new:
        settings = minimal(
            up.url,
            workers=workers,
            state={"database": database, "folder": str(tmp_path / "local")},
            auth={"pepper": "file:pepper"},
            usage={}, requests={},
            pools=[{"name": "up", "endpoints": [up.url]}, {"name": "new", "endpoints": [new.url]}],
            models=[{"name": "chat", "routes": [{"rollout": rollout}]}],
        )  # fmt: skip
        async with running(tmp_path, settings) as c:
            key = await issue(c.g, "--tenant", "acme")
            await c.g.until_status(key, 200)
            await is_sealed(key)
            await asyncio.to_thread(postgres.crash)
            await c.g.printed("the current keys stay valid")
            if workers > 1:
                before = {worker["pid"] for worker in (await c.g.state())["workers"]}
                for pid in before:
                    os.kill(pid, signal.SIGKILL)
                await c.g.until_ready(workers)
                assert before.isdisjoint(worker["pid"] for worker in (await c.g.state())["workers"])
                assert (await c.g.chat(key))[0] == 200
        calls = len(new.received)
        async with running(tmp_path, settings) as c:
            await c.g.printed("keys are from the sealed copy")
            assert [(await c.g.chat(key))[0] for _ in range(20)] == [200] * 20
            assert len(new.received) == calls  # a rollout that cannot be read sends all to `from`
            assert (await c.g.chat("wrong"))[0] == 401
            state = (await c.g.state())["key_database"]
            assert state["available"] is False
            assert state["age_seconds"] >= 0
            await asyncio.to_thread(postgres.start)
            status, _, err = await command("keys", "revoke", key.split("-")[1], "--config", str(c.g.config))
            assert status == 0, err
            await c.g.until_status(key, 401)
