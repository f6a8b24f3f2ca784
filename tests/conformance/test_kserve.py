"""KServe: its second protocol over both wires, and its first."""

from typing import Any

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from adapters.tensors import Tensor
from tests.conformance.recorded import conforms, every_feature
from tests.servers.kserve import VERSION, kserve
from tests.servers.shared import shared
from tests.servers.started import Started

pytestmark = pytest.mark.timeout(1800)  # the first run installs it

ONES = (1).to_bytes(4, "little") * 16
TWOS = (2).to_bytes(4, "little") * 16
INPUTS = [Tensor(name, "INT32", (1, 16), ONES) for name in ("INPUT0", "INPUT1")]
NAMES = {"oip-http": "v2 HTTP", "oip-grpc": "v2 gRPC", "kserve-v1": "v1"}
DECLARED = {
    kind: [{"name": f"{kind[:-1].upper()}{i}", "datatype": "INT32", "shape": [-1, 16]} for i in (0, 1)]
    for kind in ("inputs", "outputs")
}


@pytest.fixture(scope="module")
def running() -> Started:
    return shared(kserve)


def subject(server: Started, wire: str) -> Subject:
    first = wire == "kserve-v1"
    protocol: dict[str, Any] = {"name": wire, **DECLARED} if first else {"name": wire, "server": "kserve"}
    orders = {"load and unload": "Its v1 protocol has no loading; v2 has."} if first else {}
    return Subject(
        system=f"KServe, {NAMES[wire]}",
        version=VERSION,
        pool=pool(protocol, server.url(1 if wire == "oip-grpc" else 0)),
        right=requests.tensors("add_sub", *INPUTS),
        is_right=requests.outputs(TWOS, bytes(64)),
        mistake=requests.tensors("refuses", *INPUTS),
        order="" if first else "shelved",
        probed_as="oip-http" if first else "",
        lacks={
            "stream": "Its tensors are not streamed.",
            "load signals": "It reports the duration of requests, and not their number.",
            **orders,
        },
    )


@every_feature
@pytest.mark.parametrize("wire", list(NAMES))
async def test_conforms(running: Started, wire: str, feature: str) -> None:
    await conforms(subject(running, wire), feature)
