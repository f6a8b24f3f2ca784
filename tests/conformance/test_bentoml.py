"""BentoML, by its schema."""

import struct

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from adapters.tensors import Tensor
from tests.conformance.recorded import conforms, every_feature
from tests.servers.bentoml import VERSION, bentoml
from tests.servers.shared import shared
from tests.servers.started import Started

pytestmark = pytest.mark.timeout(1800)  # the first run installs it

ONES = (1).to_bytes(4, "little") * 16
TWOS = (2).to_bytes(4, "little") * 16
INPUTS = [Tensor(name, "INT32", (1, 16), ONES) for name in ("INPUT0", "INPUT1")]
WRONG = [Tensor(name, "FP32", (1, 16), ONES) for name in ("INPUT0", "INPUT1")]


@pytest.fixture(scope="module")
def running() -> Started:
    return shared(bentoml)


def subject(server: Started) -> Subject:
    upto = Tensor("upto", "INT64", (1,), (3).to_bytes(8, "little"))
    forever = [
        Tensor("upto", "INT64", (1,), (1000).to_bytes(8, "little")),
        Tensor("pause", "FP64", (1,), struct.pack("<d", 0.05)),
    ]
    return Subject(
        system="BentoML",
        version=VERSION,
        pool=pool("bentoml", server.url()),
        right=requests.tensors("add_sub", *INPUTS),
        is_right=requests.outputs(TWOS, bytes(64)),
        stream=requests.tensors("count", upto, kind="infer_stream"),
        pieces=3,
        mistake=requests.tensors("add_sub", *WRONG),
        long=requests.tensors("count", *forever, kind="infer_stream"),
        signals=server.url() + "/metrics",
        signals_server="bentoml",
        lacks={"load and unload": "Its methods are fixed at the start."},
    )


@every_feature
async def test_conforms(running: Started, feature: str) -> None:
    await conforms(subject(running), feature)
