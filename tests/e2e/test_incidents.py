"""Planted incidents: `headrace why` names the cause of each, among all the others, in a real gateway."""

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp

from adapters.http1.message import Response
from config.schema.identity import GrantConfig
from gateway.auth.audit import Actor
from gateway.auth.keys import digest, new_key
from gateway.auth.terminal import open_store, settings_of
from tests.support.processes import GatewayProcess, command, gateway
from tests.support.upstreams import Upstream, upstream, whole

BY = Actor("tests")
WORKING = "model-1"


def error(status: int, code: str, message: str = "No.") -> Response:
    type_ = "invalid_request_error" if status < 500 else "server_error"
    body = {"error": {"message": message, "type": type_, "code": code}}
    return Response(status, [("content-type", "application/json")], json.dumps(body).encode())


class Broken:
    """An upstream that fails in the way that the name of the model orders."""

    def __init__(self) -> None:
        self.waiting = 0
        self.open = asyncio.Event()

    async def __call__(self, body: dict[str, Any]) -> Response:
        match body["model"]:
            case "errors":
                return error(500, "internal", "CUDA error")
            case "credential":
                return error(401, "invalid_api_key", "Incorrect API key provided")
            case "absent":
                return error(404, "model_not_found", "The model does not exist")
            case "page":
                return Response(200, [("content-type", "text/html")], b"<html>Sign in</html>")
            case "quota":
                return error(429, "rate_limit_exceeded", "Rate limit reached for your organization")
            case "account":
                return error(429, "insufficient_quota", "You exceeded your current quota")
            case "prompt":
                return error(400, "context_length_exceeded", "maximum context length is 10 tokens")
            case "held" | "held-queue" | "held-late":
                self.waiting += 1
                await self.open.wait()
            case "silent" | "deadline":
                await asyncio.sleep(60)
        return whole("hi")


def closed_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def pool(name: str, url: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "protocol": "openai", "endpoints": [url], "probe": {"interval": "100ms"}, **more}


MODES = ("errors", "credential", "absent", "page", "quota", "account", "prompt", "silent", "deadline", WORKING)


def configuration(up: str, sick: str) -> dict[str, Any]:
    narrow = {"queue": {"max": 1, "timeout": "30s", "max_in_flight": 1}}
    pools = [
        *(pool(name, up) for name in MODES),
        pool("dead", f"http://127.0.0.1:{closed_port()}"),
        pool("sick", sick),
        pool("held", up, max_connections=1),
        pool("held-queue", up, **narrow),
        pool("held-late", up, queue={"max": 9, "timeout": "100ms", "max_in_flight": 1}),
    ]
    routes: dict[str, dict[str, Any]] = {
        "silent": {"timeout": {"first_byte": "200ms"}},
        "deadline": {"timeout": {"total": "300ms"}},
    }
    models: list[dict[str, Any]] = [
        {
            "name": each["name"],
            "routes": [{"to": each["name"], "retry": {"attempts": 1}, **routes.get(each["name"], {})}],
        }
        for each in pools
    ]
    models.append({"name": "picky", "routes": [{"when": {"header": {"x-tier": "gold"}}, "to": WORKING}]})
    models.append(
        {"name": "priced", "price": {"prompt": "1 usd/1k", "completion": "1 usd/1k"}, "routes": [{"to": WORKING}]}
    )
    limited: dict[str, dict[str, Any]] = {
        "requests": {"requests": "1/hour"},
        "tokens": {"tokens": "30/hour"},
        "concurrent": {"concurrency": 1},
        "spender": {"spend": "0.001 usd/day"},
    }
    models_of: dict[str, list[str]] = {"spender": ["priced"], "narrow": [WORKING], "concurrent": ["held"]}
    tenants: list[dict[str, Any]] = [{"name": "acme", "models": ["*"]}, {"name": "narrow", "models": [WORKING]}]
    tenants += [
        {"name": name, "models": models_of.get(name, [WORKING]), "limits": [limit]} for name, limit in limited.items()
    ]
    return {
        "requests": {"flush": "100ms"},
        "usage": {"flush": "100ms"},
        "http": {"max_body": "64KiB"},
        "pools": pools,
        "models": models,
        "tenants": tenants,
    }


class Scene:
    """A gateway with every incident in it."""

    def __init__(self, g: GatewayProcess, broken: Broken) -> None:
        self.g = g
        self.broken = broken
        self.keys: dict[str, str] = {}

    def key(self, tenant: str = "acme", **grant: Any) -> str:
        with closing(open_store(settings_of(self.g.config))) as store:
            made = store.create(tenant, by=BY, now=time.time(), grant=GrantConfig.model_validate(grant))
        return made.plaintext

    async def ask(self, key: str, model: str = WORKING, **fields: Any) -> int:
        return (await self.g.chat(key, model=model, **fields))[0]

    async def accepted(self, key: str) -> str:
        """A key when the gateway has read it."""
        headers = {"authorization": f"Bearer {key}"}
        async with asyncio.timeout(300), aiohttp.ClientSession(headers=headers) as http:
            while (await http.get(f"{self.g.url}/v1/models")).status != 200:
                await asyncio.sleep(0.02)
        return key

    async def why(self, symptom: str = "", **query: str) -> list[dict[str, Any]]:
        if symptom:
            query["symptom"] = symptom
        status, body = await self.g.administer("GET", f"/admin/why?{urlencode(query)}")
        assert status == 200, body
        return list(body["causes"])


def id_of(key: str) -> str:
    return key.split("-")[1]


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    async with upstream() as up, upstream() as sick:
        broken = Broken()
        up.behaviour = broken
        sick.healthy = False
        async with gateway(folder, configuration(up.url, sick.url)) as g:
            made = Scene(g, broken)
            made.keys["acme"] = await made.accepted(made.key())
            try:
                yield made
            finally:
                broken.open.set()


async def named(s: Scene, name: str, *texts: str, symptom: str = "", **query: str) -> None:
    """The first cause is the planted one, and it shows these texts."""
    causes = await s.why(symptom, **query)
    assert causes, query
    first = causes[0]
    assert first["name"] == name, causes
    shown = "\n".join([first["cause"], *first["evidence"], *first["next"]])
    assert all(text in shown for text in texts), (texts, shown)
    assert first["next"], first


UPSTREAM_INCIDENTS = [
    ("errors", 502, "upstream_error", ["errors"]),
    ("credential", 502, "upstream_credential", ["credential", "renew the key"]),
    ("absent", 404, "upstream_model", ["protocol.model", "absent"]),
    ("page", 502, "upstream_bad_response", ["headrace probe"]),
    ("quota", 503, "upstream_quota", ["quota"]),
    ("account", 503, "upstream_account", ["billing"]),
    ("prompt", 400, "context_length_exceeded", ["prompt"]),
    ("silent", 504, "upstream_timeout", ["timeout.first_byte"]),
    ("deadline", 504, "deadline_exceeded", ["headrace why slow"]),
    ("dead", 503, "no_healthy_endpoint", ["unhealthy", "curl -i http://127.0.0.1:"]),
    ("sick", 503, "no_healthy_endpoint", ["its probe failed"]),
]


async def test_incidents_of_upstreams(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        key = s.keys["acme"]
        await s.g.until("{e['pool']: e['health'] for e in s['endpoints']}['sick'] == 'unhealthy'")
        await s.g.until("{e['pool']: e['health'] for e in s['endpoints']}['dead'] == 'unhealthy'")
        for model, status, _, _ in UPSTREAM_INCIDENTS:
            assert (model, await s.ask(key, model, stream=model == "silent")) == (model, status)
        for model, _, name, texts in UPSTREAM_INCIDENTS:
            await named(s, name, *texts, model=model)
        everything = await s.why("failing")
        assert {each["name"] for each in everything} >= {name for _, _, name, _ in UPSTREAM_INCIDENTS}


async def test_incidents_of_full_pools(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        key = s.keys["acme"]
        first = [asyncio.create_task(s.ask(key, model)) for model in ("held", "held-queue", "held-late")]
        async with asyncio.timeout(300):
            while s.broken.waiting < len(first):
                await asyncio.sleep(0.02)
        queued = asyncio.create_task(s.ask(key, "held-queue"))
        await s.g.until("{q['pool']: q['waiting'] for q in s['queues']}['held-queue'] == 1")
        for model, name in (("held", "pool_full"), ("held-queue", "queue_full"), ("held-late", "queue_timeout")):
            assert await s.ask(key, model) == 503
            await named(s, name, "max_in_flight", symptom="503", model=model)
        s.broken.open.set()
        assert await asyncio.gather(*first, queued) == [200] * 4


async def test_incidents_of_limits(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        keys = {name: await s.accepted(s.key(name)) for name in ("requests", "tokens", "spender", "concurrent")}
        held = asyncio.create_task(s.ask(keys["concurrent"], "held"))
        async with asyncio.timeout(300):
            while not s.broken.waiting:
                await asyncio.sleep(0.02)
        for tenant, model in (
            ("requests", WORKING),
            ("tokens", WORKING),
            ("spender", "priced"),
            ("concurrent", "held"),
        ):
            async with asyncio.timeout(300):
                while (status := await s.ask(keys[tenant], model)) != 429:
                    assert status == 200
        s.broken.open.set()
        assert await held == 200
        for tenant, unit in (("requests", "requests"), ("tokens", "tokens"), ("spender", "money"), ("concurrent", "")):
            await named(s, "limit", unit, f"subject {tenant}", "usage list", symptom="429", tenant=tenant)


async def test_incidents_of_credentials(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        revoked, rotated, scoped = s.key(), s.key(), s.key(scopes={"fronts": ["embeddings"]})
        for each in (revoked, rotated):
            await s.accepted(each)
        await s.g.until_status(scoped, 403, model=WORKING)
        with closing(open_store(settings_of(s.g.config))) as store:
            store.revoke(id_of(revoked), by=BY, now=time.time())
            successor = store.rotate(id_of(rotated), by=BY, now=time.time(), overlap=0.0)
        good = s.keys["acme"]
        wrong = good[:-6] + ("aaaaaa" if good[-6:] != "aaaaaa" else "bbbbbb")
        unknown = f"hr-{'a' * 12}-{good.split('-')[2]}"
        for each in (revoked, rotated):
            await s.g.until_refused(each)
        for each in (revoked, rotated, wrong, unknown, "sk-123"):
            assert await s.ask(each) == 401
        async with aiohttp.ClientSession() as http, http.post(f"{s.g.url}/v1/chat/completions", json={}) as answer:
            assert answer.status == 401
        causes = {each["name"]: each for each in await s.why("4xx")}
        assert {"revoked", "rotated", "wrong_secret", "unknown", "malformed", "missing"} <= causes.keys()
        assert id_of(revoked) in causes["revoked"]["cause"]
        assert successor.id in causes["rotated"]["cause"]
        assert good.split("-", 2)[2] not in json.dumps(list(causes.values()))
        await named(s, "operation_out_of_scope", symptom="403")


async def test_incidents_of_models(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        narrow = await s.accepted(s.key("narrow"))
        assert await s.ask(s.keys["acme"], "modle-1") == 404
        assert await s.ask(narrow, "picky") == 404
        assert await s.ask(s.keys["acme"], "picky") == 404
        causes = {each["name"]: each for each in await s.why("404")}
        assert f"`{WORKING}`" in "".join(causes["model_unknown"]["evidence"])
        assert "`narrow`" in causes["model_not_allowed"]["cause"]
        assert "headrace explain" in "".join(causes["no_route"]["next"])


async def test_incidents_of_operators(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        address = next(e for e in (await s.g.state())["endpoints"] if e["pool"] == WORKING)
        endpoint = address["endpoint"].partition("/")[2]
        status, body = await s.g.administer("POST", f"/admin/pools/{WORKING}/endpoints/{endpoint}/drain?force=true")
        assert status == 200, body
        s.g.config.write_text(s.g.config.read_text().replace("pools:", "pols:", 1))
        os.kill(s.g.process.pid, signal.SIGHUP)
        await s.g.until("s['configuration']['last_error'] != ''")
        causes = {each["name"]: each for each in await s.why()}
        assert "pols" in "".join(causes["configuration_refused"]["evidence"])
        assert address["address"] in causes["endpoints_drained"]["cause"]
        status, out, err = await command("why", "--url", s.g.admin)
        assert (status, err) == (0, "")
        assert out.splitlines()[2].startswith("1. The last change of the file was refused")
        status, out, err = await command("why", "--config", str(s.g.config))
        assert status == 1
        assert "pols" in err
    status, out, err = await command("why", "--url", f"http://127.0.0.1:{closed_port()}")
    assert (status, out) == (1, "")
    assert "no gateway answers" in err


async def test_another_pepper(tmp_path: Path) -> None:
    """Keys of the file, whose hashes were made with the pepper of another gateway."""
    made = [new_key() for _ in range(2)]
    written = [{"id": each.id, "hash": digest(b"of another gateway", each.plaintext).hex()} for each in made]
    async with upstream() as up:
        tenants = [{"name": "acme", "models": ["*"], "keys": written}]
        async with gateway(tmp_path, {**_plain(up), "requests": {}, "tenants": tenants}) as g:
            s = Scene(g, Broken())
            for each in made:
                assert await s.ask(each.plaintext, "chat") == 401
            await named(s, "another_pepper", "pepper", symptom="401")


async def test_slow_requests(tmp_path: Path) -> None:
    async with upstream() as up:
        up.behaviour = _late

        settings = configuration(up.url, up.url)
        async with gateway(tmp_path, settings) as g:
            s = Scene(g, Broken())
            key = await s.accepted(s.key())
            for _ in range(6):
                assert await s.ask(key) == 200
            await named(s, "upstream_begins_late", WORKING, "% of their time", symptom="slow", model=WORKING)
            queued = [asyncio.create_task(s.ask(key, "held-queue")) for _ in range(2)]
            await asyncio.gather(*queued)
            for _ in range(6):
                await asyncio.gather(*[s.ask(key, "held-queue") for _ in range(2)])
            causes = await s.why("slow", pool="held-queue")
            assert causes[0]["name"] in ("requests_wait_in_queue", "upstream_begins_late")


async def _late(_: dict[str, Any]) -> Response:
    await asyncio.sleep(0.1)
    return whole("hi")


async def test_a_gateway_without_incidents(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, {**_plain(up), "requests": {}}) as g:
        s = Scene(g, Broken())
        assert await s.ask(await s.accepted(s.key()), "chat") == 200
        assert await s.why("5xx") == []
        for query in ({"symptom": "odd"}, {"from": "never"}, {"color": "red"}):
            status, _ = await g.administer("GET", f"/admin/why?{urlencode(query)}")
            assert status == 400


def _plain(up: Upstream) -> dict[str, Any]:
    return {
        "pools": [pool("up", up.url)],
        "models": [{"name": "chat", "routes": [{"to": "up"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
