"""OpenVINO Model Server, over both of its wires: a stand-in built from its documents, over a real OpenVINO."""

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from adapters.tensors import Tensor
from tests.conformance.recorded import conforms, every_feature
from tests.servers.ovms import VERSION, ovms
from tests.servers.shared import shared
from tests.servers.started import Started

pytestmark = pytest.mark.timeout(1800)  # the first run installs it

ONES = (1).to_bytes(4, "little") * 16
TWOS = (2).to_bytes(4, "little") * 16
INPUTS = [Tensor(name, "INT32", (1, 16), ONES) for name in ("INPUT0", "INPUT1")]
WRONG = [Tensor(name, "FP32", (1, 16), ONES) for name in ("INPUT0", "INPUT1")]


@pytest.fixture(scope="module")
def running() -> Started:
    return shared(ovms)


def subject(server: Started, wire: str) -> Subject:
    over_http = wire == "oip-http"
    orders = "Its configuration file lists the models: the gateway reloads it, and cannot unload."
    return Subject(
        system=f"OpenVINO Model Server, {'HTTP' if over_http else 'gRPC'}",
        version=VERSION,
        how="conformance server",
        pool=pool({"name": wire, "server": "openvino"}, server.url(0 if over_http else 1)),
        right=requests.tensors("add_sub", *INPUTS),
        is_right=requests.outputs(TWOS, bytes(64)),
        mistake=requests.tensors("add_sub", *WRONG),
        signals=server.url() + "/metrics",
        signals_server="openvino",
        lacks={"stream": "Only its graphs stream, over gRPC."} | ({} if over_http else {"load and unload": orders}),
        unseen={"load and unload": orders} if over_http else {},
    )


@every_feature
@pytest.mark.parametrize("wire", ["oip-http", "oip-grpc"])
async def test_conforms(running: Started, wire: str, feature: str) -> None:
    await conforms(subject(running, wire), feature)
