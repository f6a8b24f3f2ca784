"""A deployment of Ray Serve that follows the demand: a scripted one on virtual time, and the REST API over HTTP."""

import asyncio
import logging
from typing import Any

import pytest
from aiohttp import web

from gateway.features.scaling.serving import DeploymentSize, HttpServeOrders, ServeError, ServeScale
from gateway.traffic.standing import PoolDemand
from tests.support.gateways import config

START_SECONDS = 3.0


def pool(endpoint: str = "http://127.0.0.1:8000/app", port: int = 8265, **scale: Any) -> Any:
    protocol = {"name": "ray-serve", "application": "app", "dashboard_port": port}
    rules = {"min": 1, "max": 4, "places": 2, "hold": "60s", "deployment": "Model", **scale}
    return config(pools=[{"name": "main", "protocol": protocol, "endpoints": [endpoint], "scale": rules}]).pools[0]


class Serve:
    """A scripted deployment."""

    def __init__(self, replicas: int) -> None:
        self.target = self.running = replicas
        self.orders: list[int] = []
        self.refusal = ""

    async def size(self) -> DeploymentSize:
        if self.refusal:
            raise ServeError(self.refusal)
        return DeploymentSize(self.target, self.running)

    async def scale(self, replicas: int) -> None:
        self.orders.append(replicas)
        self.target = replicas
        asyncio.get_running_loop().call_later(START_SECONDS, setattr, self, "running", replicas)


class ServedPool:
    """A pool with one endpoint, before a scripted deployment."""

    def __init__(self, serve: Serve, **scale: Any) -> None:
        self.serve = serve
        self.scale = ServeScale(pool(**scale), serve)
        self.demand = 0

    async def run(self, seconds: int) -> None:
        """Let time pass with a constant demand: measure, decide and follow each second."""
        loop = asyncio.get_running_loop()
        for _ in range(seconds):
            self.scale.sample(
                [PoolDemand(pool="main", in_flight=self.demand, ready=(0,), endpoints=1)], {}, loop.time()
            )
            self.scale.decide(loop.time(), 0.0)
            self.scale.follow(loop.time)
            await asyncio.sleep(1)

    def described(self) -> tuple[int, int, int]:
        state = self.scale.describe()
        return state["replicas"], state["ready"], state["starting"]


async def test_the_deployment_follows_the_demand() -> None:
    served = ServedPool(Serve(1))
    await served.run(5)
    assert (served.described(), served.serve.orders) == ((1, 1, 0), [])
    served.demand = 8
    await served.run(30)
    assert served.described() == (4, 4, 0)
    assert served.scale.starts.seconds == pytest.approx(START_SECONDS, abs=2)
    served.demand = 0
    await served.run(40)
    assert served.serve.target == 4, "fewer before `hold`"
    await served.run(600)
    assert served.described() == (1, 1, 0)
    assert served.serve.orders[-1] == 1


async def test_a_gateway_that_starts_removes_no_replica_before_the_hold() -> None:
    served = ServedPool(Serve(3))
    await served.run(50)
    assert served.serve.orders == []
    await served.run(200)
    assert served.serve.target == 1


async def test_a_refusal_is_reported_once_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    served = ServedPool(Serve(1))
    await served.run(3)
    served.serve.refusal = "no controller"
    await served.run(20)
    assert served.scale.failure == "no controller"
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == ["pool main: the replicas are unchanged: no controller"]
    served.serve.refusal, served.demand = "", 8
    await served.run(20)
    assert (served.scale.failure, served.serve.target) == ("", 4)


@pytest.mark.parametrize(
    ("status", "answer", "reason"),
    [
        (412, {}, "external_scaler_enabled"),
        (404, {}, "does not exist"),
        (503, {}, "status 503"),
        (200, {"applications": {}}, "does not exist"),
        (200, {"applications": {"app": {"deployments": {}}}}, "does not exist"),
        (200, {"applications": 7}, "no list of applications"),
    ],
)
async def test_answers_that_refuse_have_a_reason(status: int, answer: dict[str, Any], reason: str) -> None:
    async def respond(request: web.Request) -> web.Response:
        return web.json_response(answer, status=status)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        orders = HttpServeOrders(lambda: pool(port=port))
        with pytest.raises(ServeError, match=reason):
            await orders.size()
    finally:
        await runner.cleanup()
    with pytest.raises(ServeError, match="ClientConnectorError"):
        await orders.scale(2)


def test_the_places_of_a_replica_do_not_bound_the_requests_at_the_one_endpoint() -> None:
    served = pool()
    assert (served.places, served.max_in_flight) == (2, served.max_connections)
