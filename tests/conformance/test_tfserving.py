"""TensorFlow Serving, over both of its wires: a stand-in of its own messages and services over a real TensorFlow."""

import struct

import pytest

from adapters.conformance import requests
from adapters.conformance.subject import Subject, pool
from adapters.tensors import Tensor
from tests.conformance.recorded import conforms, every_feature
from tests.servers.shared import shared, tfserving_of_half
from tests.servers.tfserving import TfServing

ONE_TO_FOUR = Tensor("x", "FP32", (2, 2), struct.pack("<4f", 1, 2, 3, 4))
_WHOLE = "All its models are configured at once, with versions and labels: the gateway forwards such a configuration."


def subject(server: TfServing, wire: str) -> Subject:
    over_http = wire == "tfserving"
    return Subject(
        system=f"TensorFlow Serving, {'REST' if over_http else 'gRPC'}",
        version="its API 2.21.0",
        how="conformance server",
        pool=pool(wire, f"http://{server.http if over_http else server.grpc}"),
        right=requests.tensors("half", ONE_TO_FOUR),
        is_right=requests.outputs(struct.pack("<2f", 3, 7), struct.pack("<4f", 5, 10, 15, 20)),
        mistake=requests.tensors("half", Tensor("x", "FP32", (1, 3), bytes(12))),
        lacks={
            "stream": "A model of TensorFlow Serving returns one response.",
            "load signals": "It reports the total of requests, and not those in flight.",
            "load and unload": "It loads models over gRPC only." if over_http else _WHOLE,
        },
    )


@every_feature
@pytest.mark.parametrize("wire", ["tfserving", "tfserving-grpc"])
async def test_conforms(wire: str, feature: str) -> None:
    await conforms(subject(shared(tfserving_of_half), wire), feature)
