"""BentoML, by its schema."""

import struct

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from adapters.tensors import Tensor
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import adding
from tests.servers.bentoml import VERSION, bentoml
from tests.servers.shared import shared
from tests.servers.started import Started


def upto(count: int) -> Tensor:
    return Tensor("upto", "INT64", (1,), count.to_bytes(8, "little"))


def subject(server: Started) -> Subject:
    pause = Tensor("pause", "FP64", (1,), struct.pack("<d", 0.05))
    return adding(
        system="BentoML",
        version=VERSION,
        pool=pool("bentoml", server.url()),
        stream=requests.tensors("count", upto(3), kind="infer_stream"),
        pieces=3,
        long=requests.tensors("count", upto(1000), pause, kind="infer_stream"),
        signals=server.url() + "/metrics",
        signals_server="bentoml",
        lacks={"load and unload": "Its methods are fixed at the start."},
    )


@every_feature
async def test_conforms(feature: str) -> None:
    await conforms(subject(shared(bentoml)), feature)
