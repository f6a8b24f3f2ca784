"""MLServer, over both of its wires."""

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from adapters.tensors import Tensor, join_bytes
from tests.conformance.recorded import conforms, every_feature
from tests.servers.mlserver import VERSION, mlserver
from tests.servers.shared import shared
from tests.servers.started import Started

pytestmark = pytest.mark.timeout(1800)  # the first run installs it

ONES = (1).to_bytes(4, "little") * 16
TWOS = (2).to_bytes(4, "little") * 16
INPUTS = [Tensor(name, "INT32", (1, 16), ONES) for name in ("INPUT0", "INPUT1")]
WORDS = Tensor("text", "BYTES", (1,), join_bytes([b"one two three"]), {"content_type": "str"})


@pytest.fixture(scope="module")
def running() -> Started:
    return shared(mlserver)


def subject(server: Started, wire: str) -> Subject:
    over_http = wire == "oip-http"
    return Subject(
        system=f"MLServer, {'HTTP' if over_http else 'gRPC'}",
        version=VERSION,
        pool=pool({"name": wire, "server": "mlserver"}, server.url(0 if over_http else 1)),
        right=requests.tensors("add_sub", *INPUTS),
        is_right=requests.outputs(TWOS, bytes(64)),
        stream=requests.tensors("words", WORDS, kind="infer_stream"),
        pieces=3,
        mistake=requests.tensors("add_sub", *INPUTS[:1]),
        order="words",
        lacks={"load signals": "It counts finished requests, and queues of workers that are not used here."},
    )


@every_feature
@pytest.mark.parametrize("wire", ["oip-http", "oip-grpc"])
async def test_conforms(running: Started, wire: str, feature: str) -> None:
    await conforms(subject(running, wire), feature)
