"""TorchServe, over both of its wires."""

from collections.abc import Iterator
from typing import Any

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from adapters.tensors import Tensor
from tests.conformance.recorded import conforms, every_feature
from tests.servers.torchserve import VERSION, TorchServe, torchserve

pytestmark = pytest.mark.timeout(1800)  # the first run installs it

NAMES = {"torchserve": "REST", "torchserve-grpc": "gRPC"}
DECLARED: dict[str, Any] = {
    "inputs": [{"name": "x", "datatype": "INT64", "shape": [-1, 2]}],
    "outputs": [{"name": "sum", "datatype": "INT64", "shape": [-1]}],
}
ROWS = b"".join(number.to_bytes(8, "little") for number in (1, 2, 3, 4))
THREE_AND_SEVEN = (3).to_bytes(8, "little") + (7).to_bytes(8, "little")
X = Tensor("x", "INT64", (2, 2), ROWS)


@pytest.fixture(scope="module")
def running() -> Iterator[TorchServe]:
    with torchserve(tokens=False) as server:
        yield server


def subject(server: TorchServe, wire: str) -> Subject:
    protocol = server.pool(wire, **DECLARED)["protocol"]
    return Subject(
        system=f"TorchServe, {NAMES[wire]}",
        version=VERSION,
        pool=pool(protocol, server.url if wire == "torchserve" else server.grpc),
        right=requests.tensors("probe", X),
        is_right=requests.outputs(THREE_AND_SEVEN),
        stream=requests.tensors("probe", X, kind="infer_stream"),
        pieces=1,
        mistake=requests.tensors("probe", Tensor("x", "FP64", (2, 2), ROWS)),
        signals=f"{server.server.url(1)}/models/probe",
        signals_server="torchserve",
        order="probe",
    )


@every_feature
@pytest.mark.parametrize("wire", list(NAMES))
async def test_conforms(running: TorchServe, wire: str, feature: str) -> None:
    await conforms(subject(running, wire), feature)
