"""MLServer, over both of its wires."""

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from adapters.tensors import Tensor, join_bytes
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import adding, over_both_wires, wire_of
from tests.servers.mlserver import VERSION, mlserver
from tests.servers.shared import shared
from tests.servers.started import Started
from tests.servers.sums import ADD_SUB

WORDS = Tensor("text", "BYTES", (1,), join_bytes([b"one two three"]), {"content_type": "str"})


def subject(server: Started, wire: str) -> Subject:
    return adding(
        system=f"MLServer, {wire_of(wire)}",
        version=VERSION,
        pool=pool({"name": wire, "server": "mlserver"}, server.url(wire == "oip-grpc")),
        stream=requests.tensors("words", WORDS, kind="infer_stream"),
        pieces=3,
        mistake=requests.tensors("add_sub", *ADD_SUB[:1]),
        order="words",
        lacks={"load signals": "It counts finished requests, and queues of workers that are not used here."},
    )


@every_feature
@over_both_wires
async def test_conforms(wire: str, feature: str) -> None:
    await conforms(subject(shared(mlserver), wire), feature)
