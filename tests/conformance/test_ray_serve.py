"""Ray Serve: an application over HTTP, and another one's own services over gRPC."""

from typing import Any

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from adapters.requests import AppRequest
from adapters.tensors import Tensor
from tests.conformance.recorded import conforms, every_feature
from tests.servers.ray_serve import TOKEN, VERSION, RayServe, ray_serve
from tests.servers.shared import shared

pytestmark = pytest.mark.timeout(1800)  # the first run installs it

DECLARED: dict[str, Any] = {
    "inputs": [{"name": "x", "datatype": "INT64", "shape": [-1, 2]}],
    "outputs": [{"name": "sum", "datatype": "INT64", "shape": [-1]}],
    "path": "/sum",
}
ROWS = b"".join(number.to_bytes(8, "little") for number in (1, 2, 3, 4))
THREE_AND_SEVEN = (3).to_bytes(8, "little") + (7).to_bytes(8, "little")
X = Tensor("x", "INT64", (2, 2), ROWS)
CALL, STREAM = "/ray.serve.UserDefinedService/__call__", "/ray.serve.UserDefinedService/Streaming"
AB3 = b"\x0a\x02ab\x18\x03"
"""UserDefinedMessage {name: "ab", num: 3}."""
NO_ORDERS = {"load and unload": "Ray's own tools deploy applications."}


@pytest.fixture(scope="module")
def running() -> RayServe:
    return shared(ray_serve)


def over_http(server: RayServe) -> Subject:
    dashboard = {"dashboard_port": server.dashboard_port, "dashboard_token": TOKEN}
    return Subject(
        system="Ray Serve, HTTP",
        version=VERSION,
        pool=pool({"name": "ray-serve", **dashboard, **DECLARED}, server.url),
        right=requests.tensors("paths", X),
        is_right=requests.outputs(THREE_AND_SEVEN),
        stream=requests.tensors("paths", X, kind="infer_stream"),
        pieces=1,
        mistake=requests.tensors("paths", Tensor("x", "FP64", (2, 2), ROWS)),
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
        right=requests.app("messages", CALL, "POST", AB3),
        is_right=lambda answer: answer.body == b"\x0a\x08hello ab\x10\x06",
        stream=lambda: AppRequest(model="messages", path=STREAM, body=AB3, stream=True),
        pieces=3,
        mistake=requests.app("messages", "/Method", "POST"),
        signals=server.metrics,
        signals_server="ray",
        lacks={"metadata": "Its messages are the application's own.", **NO_ORDERS},
    )


@every_feature
@pytest.mark.parametrize("wire", [over_http, over_grpc])
async def test_conforms(running: RayServe, wire: Any, feature: str) -> None:
    await conforms(wire(running), feature)
