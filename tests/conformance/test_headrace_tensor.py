"""Our tensor runtime, over both of its wires."""

from collections.abc import Iterator

import pytest

from adapters.conformance import requests
from adapters.conformance.metrics import gauge
from adapters.conformance.subject import Subject, pool
from adapters.tensors import Tensor
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.test_triton import INPUTS, INT, NAMES, THREE, TWOS, WRONG
from tests.servers.repositories import for_headrace
from tests.support.tensor_runtime import TensorRuntime, explicit

pytestmark = pytest.mark.timeout(1800)  # the first run installs it

MANY = 500_000
ENDLESS = Tensor("IN", "INT32", (MANY,), bytes(MANY * INT))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorRuntime]:
    with explicit(for_headrace(tmp_path_factory.mktemp("headrace"), NAMES)) as server:
        yield server


def subject(server: TensorRuntime, wire: str) -> Subject:
    metrics = f"http://{server.http}/metrics"
    over_http = wire == "oip-http"
    return Subject(
        system=f"Headrace tensor runtime, {'HTTP' if over_http else 'gRPC'}",
        version="this one",
        pool=pool(wire, f"http://{server.http if over_http else server.grpc}"),
        right=requests.tensors("add_sub", *INPUTS),
        is_right=requests.outputs(TWOS, bytes(16 * INT)),
        stream=requests.tensors("repeat", Tensor("IN", "INT32", (3,), THREE), kind="infer_stream"),
        pieces=3,
        mistake=requests.tensors("add_sub", *WRONG),
        long=requests.tensors("repeat", ENDLESS, kind="infer_stream"),
        running=gauge(metrics, "headrace_tensor_in_flight"),
        signals=metrics,
        order="picky",
    )


@every_feature
@pytest.mark.parametrize("wire", ["oip-http", "oip-grpc"])
async def test_conforms(running: TensorRuntime, wire: str, feature: str) -> None:
    await conforms(subject(running, wire), feature)
