"""NVIDIA's Triton, over both of its wires."""

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import THREE, adding, over_both_wires, wire_of
from tests.servers.shared import shared, triton_of_tensors
from tests.servers.triton import Triton


def subject(server: Triton, wire: str) -> Subject:
    return adding(
        system=f"NVIDIA Triton, {wire_of(wire)}",
        version="2.51.0",
        pool=pool(wire, f"http://{server.http if wire == 'oip-http' else server.grpc}"),
        stream=requests.prompt("repeat", {"IN": [7, 8, 9]}, "generate_stream")
        if wire == "oip-http"
        else requests.tensors("repeat", THREE, kind="infer_stream"),
        pieces=3,
        signals=f"http://127.0.0.1:{server.ports.metrics}/metrics",
        order="picky",
    )


@every_feature
@over_both_wires
async def test_conforms(wire: str, feature: str) -> None:
    await conforms(subject(shared(triton_of_tensors), wire), feature)
