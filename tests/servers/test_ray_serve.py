"""Both adapters of Ray Serve before a real one, with two replicas, batches and a multiplexed model."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from adapters.base import Adapter, Answer
from adapters.call import Call
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    DeadlineError,
    InferenceError,
    ModelFailed,
    ModelNotReady,
    ServerFailed,
    Unavailable,
    Unsupported,
)
from adapters.requests import AppRequest, ModelQuery
from adapters.tensors import Inference, Tensor
from adapters.types import Deadline
from gateway.features.scaling.serving import HttpServeOrders
from tests.servers.pool_adapters import adapting, infer_request, outputs, within
from tests.servers.ray_serve import AB3, SERVICE, TOKEN, RayServe, ray_serve
from tests.servers.shared import shared
from tests.servers.sums import ROWS, SUM_OF_X, THREE_AND_SEVEN, X
from tests.support.gateways import config
from tests.support.processes import gateway

DECLARED = {**SUM_OF_X, "path": "/sum"}


@pytest.fixture(scope="module")
def server() -> RayServe:
    return shared(ray_serve)


def over(server: RayServe, **options: Any) -> Any:
    return adapting(server.url, {"name": "ray-serve", **options})


def over_grpc(server: RayServe, **options: Any) -> Any:
    return adapting(server.grpc, {"name": "ray-serve-grpc", "application": "messages", **options})


def call(path: str, body: bytes = b"", **fields: Any) -> AppRequest:
    return AppRequest(**{"model": "m7", "path": path, "body": body, "method": "GET", **fields})


async def reported(adapter: Adapter, request: AppRequest) -> Any:
    answer = await adapter.call(request, within())
    assert answer.status == 200
    return json.loads(answer.body or b"")


async def refused(adapter: Adapter, request: Any) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        await adapter.call(request, within())
    return caught.value


# ── over HTTP ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_calls(server: RayServe) -> None:
    async with over(server, headers=["x-tenant"]) as adapter:
        await adapter.probe(30)
        request = call("/a%20b", b"hi", query="c=1", method="POST")
        answer = await adapter.call(
            request, Call(within().deadline, "id-1", headers={"x-tenant": "t", "x-other": "no"})
        )
        assert json.loads(answer.body or b"") == {
            "method": "POST", "path": "/paths/a b", "query": "c=1", "body": "hi",
            "headers": {"x-request-id": "id-1", "x-tenant": "t"},
        }  # fmt: skip
        teapot = await adapter.call(call("/teapot"), within())
        assert (teapot.status, teapot.body, teapot.content_type) == (
            418,
            b"short and stout",
            "text/plain; charset=utf-8",
        )


async def test_failures(server: RayServe) -> None:
    async with over(server) as adapter:
        failed = await refused(adapter, call("/fail"))
        assert type(failed) is ServerFailed
        assert "own words" not in failed.message
    async with adapting(f"{server.server.url()}/nobody", "ray-serve") as elsewhere:
        assert (await refused(elsewhere, call("/x"))).code == "upstream_model_not_found"
        with pytest.raises(BackendError, match="no route"):
            await elsewhere.probe(30)


async def test_more_than_may_wait_are_refused_as_capacity(server: RayServe) -> None:
    async with over(server) as adapter:
        # Beside other tests the calls take seconds to arrive, and eight leave the server every four seconds.
        calls = [adapter.call(call("/sleep", query="seconds=2"), within()) for _ in range(30)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        full = [end for end in ends if isinstance(end, BaseException)]
        assert full
        assert all(type(end) is CapacityError for end in full)
        assert sum(isinstance(end, Answer) for end in ends) >= 4  # two replicas with two each


async def test_streams(server: RayServe) -> None:
    async with over(server) as adapter:
        answer = await adapter.call(call("/stream", query="words=one,two"), within())
        assert answer.body is None
        first = await anext(answer)
        assert first.startswith(b"one ")
        assert first + b"".join([piece async for piece in answer]) == b"one two "


async def until_more(adapter: Adapter, path: str, before: int) -> None:
    """Wait until the counter of the application at `path` changes."""
    async with asyncio.timeout(300):
        while await reported(adapter, call(path)) == before:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("way", ["stream", "sleep", "time"])
async def test_a_client_that_disconnects_ends_the_work_of_the_replica(server: RayServe, way: str) -> None:
    async with over(server) as adapter:
        begun, before = await reported(adapter, call("/started")), await reported(adapter, call("/cancelled"))
        if way == "stream":
            answer = await adapter.call(call("/stream", query="words=one&wait=1"), within())
            await anext(answer)
            await answer.aclose()
        elif way == "sleep":
            task = asyncio.create_task(adapter.call(call("/sleep", query="seconds=60"), within()))
            await until_more(adapter, "/started", begun)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        else:
            now = asyncio.get_running_loop().time()
            with pytest.raises(DeadlineError):
                await adapter.call(call("/sleep", query="seconds=60"), Call(Deadline(now + 8, 30, 30)))
        await until_more(adapter, "/cancelled", before)


async def test_a_multiplexed_models_id_is_the_models_name(server: RayServe) -> None:
    async with over(server, multiplexed=True) as adapter:
        assert await reported(adapter, call("/model")) == "m7"
        assert await reported(adapter, call("/model", model="m8")) == "m8"
    async with adapting(server.url, {"name": "ray-serve", "multiplexed": True}, model="m9") as adapter:
        assert await reported(adapter, call("/model")) == "m9"


async def test_tensors_of_several_requests_are_one_batch(server: RayServe) -> None:
    async with over(server, **DECLARED) as adapter:
        inference = Inference("m7", inputs=[X])
        answers = await asyncio.gather(*[adapter.call(infer_request(inference), within()) for _ in range(3)])
        assert all(bytes(outputs(answer)["sum"].data) == THREE_AND_SEVEN for answer in answers)
        about = json.loads((await adapter.call(ModelQuery(model="m7"), within())).body or b"")
        assert (about["platform"], about["inputs"]) == ("ray-serve", SUM_OF_X["inputs"])
        with pytest.raises(CallerError, match="but model 'm7' expects 'INT64'"):
            await adapter.call(infer_request(Inference("m7", inputs=[Tensor("x", "FP64", (2, 2), ROWS)])), within())


async def test_the_serve_rest_api_reports_readiness(server: RayServe) -> None:
    dashboard = {"dashboard_port": server.dashboard_port, "dashboard_token": TOKEN}
    async with over(server, application="paths", **dashboard) as adapter:
        await adapter.probe(30)
        ready = await adapter.call(ModelQuery(model="m7", about="ready"), within())
        assert json.loads(ready.body or b"") == {"name": "m7", "ready": True}
        config = json.loads((await adapter.call(ModelQuery(model="m7", about="config"), within())).body or b"")
        assert config["application"]["status"] == "RUNNING"
        assert len(config["application"]["deployments"]["Paths"]["replicas"]) == 2
    async with over(server, application="nobody", **dashboard) as adapter:
        with pytest.raises(ModelNotReady, match="not deployed"):
            await adapter.probe(30)
        assert isinstance(await refused(adapter, ModelQuery(model="m7", about="ready")), Unavailable)
    wrong = {**dashboard, "dashboard_token": "wrong"}
    async with over(server, application="paths", **wrong) as adapter:
        with pytest.raises(BackendError, match="answered 40"):
            await adapter.probe(30)


# ── over gRPC ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_messages_go_through_unread(server: RayServe) -> None:
    async with over_grpc(server, multiplexed=True) as adapter:
        await adapter.probe(30)
        answer = await adapter.call(call(f"{SERVICE}__call__", AB3), within())
        assert answer.body == b"\x0a\x08hello ab\x10\x06"
        answer = await adapter.call(call(f"{SERVICE}Method1", AB3), within())
        assert answer.body == b"\x0a\x02m7"
        stream = await adapter.call(call(f"{SERVICE}Streaming", AB3, stream=True), within())
        assert [piece async for piece in stream] == [b"\x0a\x02ab", b"\x0a\x02ab\x10\x01", b"\x0a\x02ab\x10\x02"]


async def test_failures_over_grpc(server: RayServe) -> None:
    async with over_grpc(server) as adapter:
        failed = await refused(adapter, call(f"{SERVICE}Method1", b"\x0a\x04fail"))
        assert type(failed) is ModelFailed
        assert "\n" not in failed.message
        assert len(failed.message) <= 1000
        assert isinstance(await refused(adapter, call(f"{SERVICE}Nothing")), Unsupported)
        for path in ("/x", "", "/a/b/c", "/ray.serve.RayServeAPIService/ListApplications"):
            assert isinstance(await refused(adapter, call(path)), CallerError)
    async with adapting(server.grpc, "ray-serve-grpc") as adapter:
        assert (await refused(adapter, call(f"{SERVICE}__call__", AB3))).code == "upstream_model_not_found"


# ── through a gateway ─────────────────────────────────────────────────────────────────────────────────────


async def counted(http: aiohttp.ClientSession, url: str, counter: str) -> int:
    async with http.get(f"{url}/apps/paths/{counter}") as response:
        return int(await response.json())


async def check_grpc(address: str, headers: dict[str, str]) -> None:
    """Ray's own clients name the application in the call's metadata."""
    async with grpc.aio.insecure_channel(address) as channel:
        metadata = (*headers.items(), ("application", "messages"))
        assert await channel.unary_unary(f"{SERVICE}__call__")(AB3, metadata=metadata) == b"\x0a\x08hello ab\x10\x06"
        stream = channel.unary_stream(f"{SERVICE}Streaming")(AB3, metadata=metadata)
        assert [piece async for piece in stream] == [b"\x0a\x02ab", b"\x0a\x02ab\x10\x01", b"\x0a\x02ab\x10\x02"]
        for application, code in (("nobody", grpc.StatusCode.NOT_FOUND), ("paths", grpc.StatusCode.UNIMPLEMENTED)):
            named = (*headers.items(), ("application", application))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary(f"{SERVICE}__call__")(AB3, metadata=named)
            assert refused.value.code() == code


def with_dashboard(server: RayServe, folder: Path, application: str) -> dict[str, Any]:
    """The protocol of an application, with the dashboard, whose token is in a file."""
    token = folder / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    dashboard = {"dashboard_port": server.dashboard_port, "dashboard_token": f"file:{token}"}
    return {"name": "ray-serve", "application": application, **dashboard}


async def test_a_deployment_follows_the_demand(server: RayServe, tmp_path: Path) -> None:
    protocol = with_dashboard(server, tmp_path, "scaled")
    scale = {"min": 1, "max": 2, "places": 1, "hold": "3s", "deployment": "Scaled"}
    pool = {"name": "apps", "protocol": protocol, "endpoints": [server.scaled_url], "scale": scale}
    configuration = {
        "listen": {"http": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "pools": [pool], "models": [{"name": "scaled", "routes": [{"to": "apps"}]}],
        "tenants": [{"name": "acme", "models": ["scaled"]}],
    }  # fmt: skip
    async with gateway(tmp_path, configuration) as g:
        await g.until("all(e['health'] == 'healthy' for e in s['endpoints'])")
        await g.until("s['replicas'][0]['ready'] == 1")
        headers = {"authorization": f"Bearer {await g.key()}"}
        async with aiohttp.ClientSession(headers=headers) as http:

            async def load() -> None:
                while True:
                    async with http.get(f"{g.url}/apps/scaled/?seconds=0.5") as response:
                        assert (response.status, await response.json()) == (200, "done")

            clients = [asyncio.create_task(load()) for _ in range(4)]
            await g.until("s['replicas'][0]['ready'] == 2")
            failed = [client for client in clients if client.done()]
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
            assert failed == []
        assert "a replica" in (await g.state())["replicas"][0]["reason"]
        assert "Ray Serve runs 2 replicas after 1" in g.output
    protocol["dashboard_token"] = TOKEN
    orders = HttpServeOrders(lambda: config(pools=[pool]).pools[0])
    await orders.scale(1)  # the gateway would do it after its window of demand
    async with asyncio.timeout(300):
        while await orders.size() != (1, 1):
            await asyncio.sleep(0.1)


async def test_apps_of_a_tenant(server: RayServe, tmp_path: Path) -> None:
    """Paths, streams, a family of multiplexed models, tensors, and a client that leaves."""
    protocol = {**with_dashboard(server, tmp_path, "paths"), **DECLARED}
    pools = [
        {"name": "apps", "protocol": protocol, "endpoints": [server.url]},
        {"name": "messages", "protocol": "ray-serve-grpc", "endpoints": [server.grpc]},
        {"name": "adapters", "protocol": {"name": "ray-serve", "multiplexed": True}, "endpoints": [server.url]},
    ]
    leads = {"paths": "apps", "lora-*": "adapters", "messages": "messages"}
    models = [{"name": name, "routes": [{"to": pool}]} for name, pool in leads.items()]
    listen = {"http": "127.0.0.1:0", "admin": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    tenants = [{"name": "acme", "models": list(leads)}]
    configuration = {"listen": listen, "pools": pools, "models": models, "tenants": tenants}
    async with gateway(tmp_path, configuration) as g:
        await g.until("all(e['health'] == 'healthy' for e in s['endpoints'])")
        headers = {"authorization": f"Bearer {await g.key()}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            async with http.patch(f"{g.url}/apps/paths/a?b=1", data=b"hi") as response:
                assert (response.status, (await response.json())["path"]) == (200, "/paths/a")
            async with http.get(f"{g.url}/apps/lora-sql/model") as response:
                assert await response.json() == "lora-sql"
            async with http.get(f"{g.url}/apps/paths/stream?words=one,two") as response:
                assert (await response.read(), response.headers["transfer-encoding"]) == (b"one two ", "chunked")
            async with http.post(f"{g.url}/apps/messages{SERVICE}__call__", data=AB3) as response:
                assert await response.read() == b"\x0a\x08hello ab\x10\x06"
            await check_grpc(g.grpc, headers)
            async with http.get(f"{g.url}/apps/paths/fail") as response:
                assert (response.status, response.headers["x-headrace-error"]) == (502, "upstream_error")
            async with http.post(
                f"{g.url}/v1/models/paths:predict", json={"inputs": {"x": [[1, 2], [3, 4]]}}
            ) as response:
                assert await response.json() == {"outputs": [3, 7]}
            begun, before = await counted(http, g.url, "started"), await counted(http, g.url, "cancelled")
            leaving = asyncio.ensure_future(http.get(f"{g.url}/apps/paths/sleep?seconds=60"))
            async with asyncio.timeout(300):
                while await counted(http, g.url, "started") == begun:
                    await asyncio.sleep(0.1)
                leaving.cancel()
                while await counted(http, g.url, "cancelled") == before:
                    await asyncio.sleep(0.1)
            with suppress(asyncio.CancelledError):
                await leaving
        await g.until_idle()
