"""Ray Serve: an application over HTTP, and another one's own services over gRPC."""

from typing import Any

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from adapters.requests import AppRequest
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import summing
from tests.servers.ray_serve import AB3, SERVICE, TOKEN, VERSION, RayServe, ray_serve
from tests.servers.shared import shared
from tests.servers.sums import SUM_OF_X

NO_ORDERS = {"load and unload": "Ray's own tools deploy applications."}


def over_http(server: RayServe) -> Subject:
    dashboard = {"dashboard_port": server.dashboard_port, "dashboard_token": TOKEN}
    return summing(
        "paths",
        system="Ray Serve, HTTP",
        version=VERSION,
        pool=pool({"name": "ray-serve", **dashboard, **SUM_OF_X, "path": "/sum"}, server.url),
        signals=server.metrics,
        signals_server="ray",
        lacks={
            "unknown model": "The path of the endpoint's URL selects the application: no name is sent.",
            **NO_ORDERS,
        },
    )


def over_grpc(server: RayServe) -> Subject:
    return Subject(
        system="Ray Serve, gRPC",
        version=VERSION,
        pool=pool("ray-serve-grpc", server.grpc),
        right=requests.app("messages", f"{SERVICE}__call__", "POST", AB3),
        is_right=lambda answer: answer.body == b"\x0a\x08hello ab\x10\x06",
        stream=lambda: AppRequest(model="messages", path=f"{SERVICE}Streaming", body=AB3, stream=True),
        pieces=3,
        mistake=requests.app("messages", "/Method", "POST"),
        signals=server.metrics,
        signals_server="ray",
        lacks={"metadata": "Its messages are the application's own.", **NO_ORDERS},
    )


@every_feature
@pytest.mark.parametrize("wire", [over_http, over_grpc])
async def test_conforms(wire: Any, feature: str) -> None:
    await conforms(wire(shared(ray_serve)), feature)
