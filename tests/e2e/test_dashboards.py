"""Every expression of the dashboards and rules, on a real Prometheus that scrapes two workers and both runtimes."""

import asyncio
import functools
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from adapters.http1.message import Response
from tests.servers.llm import NAME, llm
from tests.servers.repositories import for_headrace
from tests.support.collectors import http_collector
from tests.support.issuers import SigningKey, issuer, jwks_server
from tests.support.processes import GatewayProcess, gateway
from tests.support.prometheus import Prometheus, prometheus
from tests.support.redis import RedisServer
from tests.support.tensor_runtime import tensor_runtime
from tests.support.upstreams import upstream

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]
DEPLOY = Path(__file__).parents[2] / "deploy"
COPIES = {"concurrency": 8, "requests": "100/s", "spend": "100 usd/day"}
SECONDS = 600.0
"""How long samples may take on the slowest machine."""
HI = [{"role": "user", "content": "hi"}]


ABSENT = re.compile(r"headrace_(bus|batch|batches|budget_alerts|certificate|request_records)_")
"""Metrics of brokers, batches, webhooks, certificates and stored requests, which this gateway does not have."""
SILENT = frozenset({"HeadracePoolDeadForOne"})
"""Alerts without a sample while another one fires. Tests of the rules cover them."""


def expressions() -> dict[str, str]:
    """The expressions, by dashboard and panel or by rule, with the variables of dashboards replaced."""
    by_place: dict[str, str] = {}
    for path in (DEPLOY / "grafana").glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                written = re.sub(r"\$__rate_interval|\$__range", "1m", target["expr"])
                written = written.replace("${currency}", "usd")
                by_place[f"{path.stem} / {panel['title']} / {target['refId']}"] = re.sub(r"\$\w+", ".*", written)
    rules = yaml.safe_load((DEPLOY / "prometheus" / "headrace.rules.yaml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        if "record" in rule:
            by_place[rule["record"]] = rule["record"]
        else:  # with `bool`, a comparison has a sample if its sides have
            by_place[rule["alert"]] = re.sub(r" (==|>|<) ", r" \1 bool ", rule["expr"])
    return {place: text for place, text in by_place.items() if not ABSENT.search(text) and place not in SILENT}


def configuration(urls: dict[str, str], folder: Path) -> dict[str, Any]:
    (folder / "endpoints.yaml").write_text(yaml.safe_dump({"endpoints": [urls["up"]]}))
    price = {"prompt": "1 usd/1M", "completion": "2 usd/1M"}
    routes: dict[str, list[dict[str, Any]]] = {
        "chat": [{"to": "main"}],
        "cached": [{"to": "main", "cache": {"ttl": "1s", "share": "tenant", "only": "all"}}],
        "rerouted": [{"to": "dead", "fallback": ["main"]}],
        "failing": [{"to": "failing"}],
        "broken": [{"to": "dead"}],
        "discovered": [{"to": "discovered"}],
        "llm": [{"to": "llm"}],
        "add_sub": [{"to": "tensors"}],
        "picky": [{"to": "tensors"}],
        "rolled": [{"rollout": {
            "name": "r", "from": "main", "to": "other", "requests": 10,
            "steps": [{"weight": "50%", "for": "1h"}], "back_if": [{"metric": "failures"}],
        }}],
        "copied": [{"to": "main", "shadow": {"name": "s", "to": "other", "share": "100%", "at_most": COPIES}}],
        "compared": [{"experiment": {
            "name": "e", "metric": "solved", "arms": ["main", "other"], "warmup": "1s",
            "guards": [{"metric": "failures"}],
        }}],
    }  # fmt: skip
    models: list[dict[str, Any]] = [{"name": name, "price": price, "routes": made} for name, made in routes.items()]
    steps = [{"name": "one", "model": "chat"}, {"name": "two", "model": "chat", "in": {"prompt": "one.text"}}]
    models.append({"name": "pipeline", "pipeline": {"steps": steps}})
    return {
        "workers": 2,
        "state": {"database": f"sqlite:///{folder}/state.db", "redis": urls["redis"]},
        "auth": {"jwt": [issuer(urls["issuer"])]},
        "usage": {},
        "feedback": [{"name": "solved", "type": "boolean", "better": "higher"}],
        "traces": {"to": urls["collector"], "sample": "100%"},
        "pools": [
            {"name": "main", "endpoints": [urls["up"]], "queue": {"max_in_flight": 2, "max": 50}},
            {"name": "other", "endpoints": [urls["up"]]},
            {"name": "failing", "endpoints": [urls["failing"]]},
            {"name": "dead", "endpoints": ["http://127.0.0.1:9"]},
            {"name": "discovered", "discover": {"file": "endpoints.yaml"}},
            {"name": "llm", "endpoints": [urls["llm"]], "model": NAME},
            {"name": "tensors", "protocol": "oip-http", "endpoints": [urls["tensors"]]},
        ],
        "models": models,
        "tenants": [
            {"name": "acme", "models": ["*"], "limits": {"spend": "100 usd/month", "count": "exact"}},
            {"name": "tight", "models": ["*"], "limits": {"requests": "1/hour"}},
        ],
    }


class Clients:
    """Requests of every kind, again and again."""

    def __init__(self, g: GatewayProcess, key: str, tight: str, llm_url: str) -> None:
        self._g, self._key, self._tight, self._llm = g, key, tight, llm_url

    async def run(self) -> None:
        async with aiohttp.ClientSession() as http:
            while True:
                async with asyncio.TaskGroup() as some:
                    for model in ("chat", "chat", "chat", "cached", "rerouted", "failing", "broken", "discovered"):
                        some.create_task(self._chat(http, model))
                    for model in ("rolled", "pipeline", "copied"):
                        some.create_task(self._chat(http, model))
                    some.create_task(self._reported(http))
                    some.create_task(self._chat(http, "llm", max_tokens=4, stream=True))
                    some.create_task(self._chat(http, "chat", stream=True))
                    some.create_task(self._chat(http, "chat", key=self._tight))
                    some.create_task(self._infer(http, "add_sub", "INT32", [1] * 16, "INPUT0", "INPUT1"))
                    some.create_task(self._infer(http, "picky", "FP32", [-1.0], "X"))
                    some.create_task(self._nonsense())
                await asyncio.sleep(0.2)

    async def _reported(self, http: aiohttp.ClientSession) -> None:
        """A chat of an experiment, and a value for it."""
        headers = {"authorization": f"Bearer {self._key}"}
        report = {"id": await self._chat(http, "compared"), "metric": "solved", "value": True}
        async with http.post(f"{self._g.url}/v1/feedback", json=report, headers=headers) as response:
            await response.read()

    async def _chat(self, http: aiohttp.ClientSession, model: str, key: str = "", **fields: Any) -> str:
        headers = {"authorization": f"Bearer {key or self._key}"}
        body = {"model": model, "messages": HI, **fields}
        async with http.post(f"{self._g.url}/v1/chat/completions", json=body, headers=headers) as response:
            await response.read()
            return response.headers.get("x-request-id", "")

    async def _infer(self, http: aiohttp.ClientSession, model: str, datatype: str, data: Any, *names: str) -> None:
        inputs = [{"name": name, "shape": [1, len(data)], "datatype": datatype, "data": data} for name in names]
        headers = {"authorization": f"Bearer {self._key}"}
        url = f"{self._g.url}/v2/models/{model}/infer"
        async with http.post(url, json={"inputs": inputs}, headers=headers) as response:
            await response.read()

    async def _nonsense(self) -> None:
        host, port = self._g.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"nonsense\r\n\r\n")
        with suppress(ConnectionError):
            await reader.read()
        writer.close()


async def fail(_: dict[str, Any]) -> Response:
    return Response(500, [], b"{}")


def follow_drift(model: Path) -> None:
    """Compare the inputs of a model with a reference."""
    (model / "reference.json").write_text('{"features": {"INPUT0[0]": {"edges": [0, 1], "counts": [1, 5, 1]}}}')
    drift = "{reference: reference.json, rows: 100}"
    with (model / "config.pbtxt").open("a") as file:
        file.write(f'parameters {{ key: "headrace.drift" value {{ string_value: "{drift}" }} }}\n')


@asynccontextmanager
async def everything(folder: Path) -> AsyncIterator[tuple[Prometheus, Any]]:
    """Prometheus, over a gateway of two workers with clients and both runtimes, and the collector of its traces."""
    (models := folder / "models").mkdir()
    async with AsyncExitStack() as stack:
        up, failing = [await stack.enter_async_context(upstream()) for _ in range(2)]
        failing.behaviour = fail
        collector = await stack.enter_async_context(http_collector())
        keys = await stack.enter_async_context(jwks_server(SigningKey("RS256")))
        redis = RedisServer(folder)
        stack.callback(redis.kill)
        await redis.start()
        follow_drift(for_headrace(models, ["add_sub", "picky"]) / "add_sub")
        tensors = stack.enter_context(tensor_runtime("--repository", str(models)))
        engine = stack.enter_context(llm())
        urls = {
            "up": up.url,
            "failing": failing.url,
            "collector": collector.url,
            "issuer": keys.url,
            "redis": redis.url,
            "tensors": f"http://{tensors.http}",
            "llm": engine.url,
        }
        g = await stack.enter_async_context(gateway(folder, configuration(urls, folder)))
        jobs = {
            "headrace": g.admin.removeprefix("http://"),
            "llm": engine.url.removeprefix("http://"),
            "tensors": tensors.http,
        }
        rules = DEPLOY / "prometheus" / "headrace.rules.yaml"
        server = await stack.enter_async_context(prometheus(folder, jobs, rules))
        clients = asyncio.create_task(Clients(g, await g.key(), await g.key("tight"), engine.url).run())
        try:
            yield server, collector
        finally:
            clients.cancel()
            await asyncio.gather(clients, return_exceptions=True)


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Wait for a result that is true."""
    async with asyncio.timeout(SECONDS):
        while not (result := await condition()):
            await asyncio.sleep(0.5)
    return result


async def test_every_expression_has_samples_and_exemplars_lead_to_traces(tmp_path: Path) -> None:
    begin = time.time()
    async with everything(tmp_path) as (server, collector):
        missing = expressions()
        assert len(missing) > 90

        async def complete() -> bool:
            for name, expression in list(missing.items()):
                if await server.query(expression):
                    del missing[name]
            return not missing

        try:
            await until(complete)
        except TimeoutError:
            raise AssertionError(f"without samples: {json.dumps(missing, indent=1)}") from None
        assert {rule["health"] for rule in await server.rules()} == {"ok"}

        names = ("headrace_request_duration_seconds_bucket", "gen_ai_server_time_to_first_token_seconds_bucket")
        for name in names:
            exemplars = await until(functools.partial(server.exemplars, name, begin))
            traced = {exemplar["labels"]["trace_id"] for exemplar in exemplars}

            async def exported(traced: set[str] = traced) -> bool:
                return traced <= {span.trace for span in collector.spans}

            await until(exported)
