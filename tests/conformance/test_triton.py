"""NVIDIA's Triton, over both of its wires."""

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from adapters.tensors import Tensor
from tests.conformance.recorded import conforms, every_feature
from tests.servers.shared import shared, triton_of_tensors
from tests.servers.triton import Triton

pytestmark = pytest.mark.timeout(1800)  # the first run installs it

NAMES = ("add_sub", "picky", "repeat")
INT = 4
ONES = (1).to_bytes(INT, "little") * 16
TWOS = (2).to_bytes(INT, "little") * 16
INPUTS = [Tensor(name, "INT32", (1, 16), ONES) for name in ("INPUT0", "INPUT1")]
WRONG = [Tensor(name, "FP32", (1, 16), ONES) for name in ("INPUT0", "INPUT1")]
THREE = b"".join(number.to_bytes(INT, "little") for number in (7, 8, 9))


@pytest.fixture(scope="module")
def running() -> Triton:
    return shared(triton_of_tensors)


def subject(server: Triton, wire: str) -> Subject:
    over_http = wire == "oip-http"
    return Subject(
        system=f"NVIDIA Triton, {'HTTP' if over_http else 'gRPC'}",
        version="2.51.0",
        pool=pool(wire, f"http://{server.http if over_http else server.grpc}"),
        right=requests.tensors("add_sub", *INPUTS),
        is_right=requests.outputs(TWOS, bytes(16 * INT)),
        stream=requests.prompt("repeat", {"IN": [7, 8, 9]}, "generate_stream")
        if over_http
        else requests.tensors("repeat", Tensor("IN", "INT32", (3,), THREE), kind="infer_stream"),
        pieces=3,
        mistake=requests.tensors("add_sub", *WRONG),
        signals=f"http://127.0.0.1:{server.ports.metrics}/metrics",
        order="picky",
    )


@every_feature
@pytest.mark.parametrize("wire", ["oip-http", "oip-grpc"])
async def test_conforms(running: Triton, wire: str, feature: str) -> None:
    await conforms(subject(running, wire), feature)
