"""The file of a running gateway over the admin API: drafts are checked, replayed, applied, and taken back."""

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(1800)
PASSWORD = "Correct-Horse-9"
HASH = "0123456789abcdef" * 4
CONFIG = "/admin/config"


class ConfigClient:
    """A gateway and its operator."""

    def __init__(self, g: GatewayProcess, http: aiohttp.ClientSession) -> None:
        self.g = g
        self._http = http

    async def send(self, method: str, path: str, body: Any = None, revision: str = "") -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        headers = {"content-type": "application/json"} | ({"if-match": f'"{revision}"'} if revision else {})
        sent = None if method == "GET" else io.BytesIO(data)
        async with self._http.request(method, self.g.admin + path, data=sent, headers=headers) as response:
            assert response.status != 500, self.g.output
            return response.status, json.loads(await response.read())

    async def shown(self) -> dict[str, Any]:
        status, body = await self.send("GET", CONFIG)
        assert status == 200, body
        return dict(body)

    async def acts(self, expected: list[tuple[str, str]]) -> None:
        """Wait until the audit log has these entries of changes to the file, which it has behind the requests."""
        async with asyncio.timeout(300):
            while True:
                _, body = await self.send("GET", "/admin/audit?limit=100")
                acts = [(entry["action"], entry["outcome"]) for entry in reversed(body["entries"])]
                own = [act for act in acts if act[0] in ("config.apply", "config.return")]
                if len(own) >= len(expected):
                    break
                await asyncio.sleep(0.05)
        assert own == expected


def configuration(folder: Path, url: str, **changes: Any) -> dict[str, Any]:
    (folder / "record.key").write_text("the key of this record")
    return {
        "auth": {"admin": {"edit": True}},
        "record": {"to": str(folder / "traffic"), "key": "file:record.key", "share": "100%"},
        "pools": [{"name": "main", "endpoints": [url]}, {"name": "next", "endpoints": [url]}],
        "models": [{"name": "chat", "routes": [{"to": "main"}]}],
        "tenants": [{"name": "acme", "models": ["*"], "keys": [{"id": "a" * 12, "hash": HASH}]}],
        **changes,
    }


@asynccontextmanager
async def running(folder: Path, **changes: Any) -> AsyncIterator[ConfigClient]:
    async with upstream() as up, gateway(folder, configuration(folder, up.url, **changes)) as g:
        path = g.config
        path.write_text(f"# redis://:{PASSWORD}@cache\n{path.read_text()}")
        await asyncio.to_thread(os.chmod, path, 0o640)
        async with aiohttp.ClientSession() as http:
            client = ConfigClient(g, http)
            async with asyncio.timeout(300):
                while (s := await client.shown())["in_force"] != s["revision"]:
                    await asyncio.sleep(0.05)
            yield client


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_draft_is_checked_applied_and_taken_back(tmp_path: Path, workers: int) -> None:
    async with running(tmp_path, workers=workers) as c:
        before = c.g.config.read_bytes()
        shown = await c.shown()
        assert shown["editable"]
        assert HASH not in shown["text"]
        assert PASSWORD not in shown["text"]
        draft = shown["text"].replace("to: main", "to: next")
        status, body = await c.send("POST", f"{CONFIG}/check", {"text": draft})
        assert (status, body["valid"], body["problems"]) == (200, True, [])
        assert "+  - to: next" in body["diff"]
        status, body = await c.send("PUT", CONFIG, {"text": draft}, shown["revision"])
        assert status == 200, body
        after = (await c.shown())["revision"]
        assert after == body["revision"] == (await c.shown())["in_force"]
        assert c.g.config.read_bytes() == before.replace(b"to: main", b"to: next")
        assert c.g.config.stat().st_mode & 0o777 == 0o640
        assert [name for name in os.listdir(tmp_path) if name.startswith(".headrace")] == []
        _, explained = await c.send("POST", "/admin/explain", {"tenant": "acme", "model": "chat"})
        assert explained["to"]["pool"] == "next"

        async with asyncio.timeout(300):
            while True:
                _, body = await c.send("GET", f"{CONFIG}/history")
                if len(body["versions"]) == 3:
                    break
                await asyncio.sleep(0.05)
        newest, second, first = body["versions"]
        assert [newest["cause"], second["cause"], first["cause"]] == ["apply", "reload", "start"]
        assert (newest["actor"], newest["revision"], second["revision"]) == ("local", after, shown["revision"])
        _, old = await c.send("GET", f"{CONFIG}/history/{second['version']}")
        assert old["text"] == shown["text"]
        status, body = await c.send("POST", f"{CONFIG}/history/{second['version']}/apply", {}, after)
        assert (status, body["revision"]) == (200, shown["revision"])
        assert c.g.config.read_bytes() == before
        await c.acts([("config.apply", "done"), ("config.return", "done")])


async def test_a_draft_that_may_not_be_applied_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as c:
        before, shown = c.g.config.read_bytes(), await c.shown()
        valid = shown["text"].replace("to: main", "to: next")
        (tmp_path / "headrace.tests.yaml").write_text(
            "tests: [{request: {tenant: acme, model: chat}, expect: {pool: main}}]\n"
        )
        history = (await c.send("GET", f"{CONFIG}/history"))[1]["versions"]
        refused: list[tuple[Any, str, int, str]] = [
            ({"text": valid}, "", 428, "revision_required"),
            ({"text": valid}, "0" * 64, 412, "revision_changed"),
            ({"text": valid}, shown["revision"], 422, "tests_failed"),
            ({"text": shown["text"].replace("to: main", "to: mian")}, shown["revision"], 422, ""),
            ({"text": f"{shown['text']}x: redacted-{'1' * 24}\n"}, shown["revision"], 422, ""),
            ({"texts": valid}, shown["revision"], 400, "invalid_request"),
            (b"\xff", shown["revision"], 400, "invalid_request"),
        ]
        for body, revision, status, code in refused:
            got, answer = await c.send("PUT", CONFIG, body, revision)
            assert (got, answer.get("error", {}).get("code", "")) == (status, code), answer
        (tmp_path / "headrace.tests.yaml").unlink()
        restart = shown["text"].replace("sqlite:///", "sqlite:////")
        status, answer = await c.send("PUT", CONFIG, {"text": restart}, shown["revision"])
        assert (status, answer["error"]["code"]) == (409, "reload_refused")
        assert "restart" in answer["error"]["message"]
        assert c.g.config.read_bytes() == before
        assert (await c.shown())["last_error"] == ""
        assert (await c.send("GET", f"{CONFIG}/history"))[1]["versions"] == history
        # Without a revision, the entry has the method and the path.
        await c.acts([("config.apply", "refused")] * 7)
        status, answer = await c.send("POST", f"{CONFIG}/history/99/apply", {}, shown["revision"])
        assert (status, answer["error"]["code"]) == (404, "no_such_version")


@pytest.mark.parametrize("reason", ["not enabled", "Git"])
async def test_a_file_that_is_not_to_be_edited_is_reported_so(tmp_path: Path, reason: str) -> None:
    changes = {"auth": {"admin": {"edit": False}}} if reason == "not enabled" else {}
    async with running(tmp_path, **changes) as c:
        if reason == "Git":
            (tmp_path / ".git").mkdir()
        shown = await c.shown()
        assert not shown["editable"]
        assert reason in shown["why"]
        status, answer = await c.send("PUT", CONFIG, {"text": shown["text"]}, shown["revision"])
        assert (status, answer["error"]["code"]) == (403, "not_editable")


async def test_the_last_hour_is_replayed_under_a_draft(tmp_path: Path) -> None:
    async with running(tmp_path) as c:
        key = await c.g.key()
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http:
            for number in range(5):
                chat = {"model": "chat", "messages": [{"role": "user", "content": f"{number}"}]}
                async with http.post(f"{c.g.url}/v1/chat/completions", json=chat) as response:
                    assert response.status == 200
        draft = (await c.shown())["text"].replace("to: main", "to: next")
        async with asyncio.timeout(300):
            while True:
                status, report = await c.send("POST", f"{CONFIG}/replay", {"text": draft})
                if status == 200 and report["requests"] >= 5:
                    break
                assert status in (200, 409), report
                await asyncio.sleep(0.2)
        assert report["pool"] == report["changed"] >= 5
        (move, *_) = report["moves"]
        assert (move["from"], move["to"]) == ("main", "next")
        status, answer = await c.send("POST", f"{CONFIG}/replay", {"text": "version: 2"})
        assert (status, answer["error"]["code"]) == (422, "invalid_config")
        assert answer["problems"]


async def test_checks_do_not_hold_the_listener(tmp_path: Path) -> None:
    """Another request is answered before any of the large drafts is checked."""
    async with running(tmp_path) as c:
        tenants = "".join(f"  - {{name: t{number}, models: ['a', 'b*']}}\n" for number in range(1_000))
        large = {"text": f"version: 1\npools: []\nmodels: []\ntenants:\n{tenants}"}
        checks = [asyncio.create_task(c.send("POST", f"{CONFIG}/check", large)) for _ in range(3)]
        await c.send("GET", "/admin/pools")
        assert not any(check.done() for check in checks)
        for status, body in await asyncio.gather(*checks):
            assert status == 422 or not body["valid"]
