"""KServe: its second protocol over both wires, and its first."""

from typing import Any

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import adding
from tests.servers.kserve import DECLARED, VERSION, kserve
from tests.servers.shared import shared
from tests.servers.started import Started
from tests.servers.sums import ADD_SUB

NAMES = {"oip-http": "v2 HTTP", "oip-grpc": "v2 gRPC", "kserve-v1": "v1"}


def subject(server: Started, wire: str) -> Subject:
    first = wire == "kserve-v1"
    protocol: dict[str, Any] = DECLARED if first else {"name": wire, "server": "kserve"}
    orders = {"load and unload": "Its v1 protocol has no loading; v2 has."} if first else {}
    return adding(
        system=f"KServe, {NAMES[wire]}",
        version=VERSION,
        pool=pool(protocol, server.url(1 if wire == "oip-grpc" else 0)),
        mistake=requests.tensors("refuses", *ADD_SUB),
        order="" if first else "shelved",
        probed_as="oip-http" if first else "",
        lacks={
            "stream": "Its tensors are not streamed.",
            "load signals": "It reports the duration of requests, and not their number.",
            **orders,
        },
    )


@every_feature
@pytest.mark.parametrize("wire", NAMES)
async def test_conforms(wire: str, feature: str) -> None:
    await conforms(subject(shared(kserve), wire), feature)
