"""Our tensor runtime, over both of its wires."""

from collections.abc import Iterator

import pytest

from adapters.conformance import requests
from adapters.conformance.bench import gauge
from adapters.conformance.subject import Subject, pool
from adapters.tensors import Tensor
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import THREE, adding, over_both_wires, wire_of
from tests.servers.repositories import for_headrace
from tests.support.tensor_runtime import TensorRuntime, explicit

MANY = 500_000
ENDLESS = Tensor("IN", "INT32", (MANY,), bytes(MANY * 4))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorRuntime]:
    with explicit(for_headrace(tmp_path_factory.mktemp("headrace"), ("add_sub", "picky", "repeat"))) as server:
        yield server


def subject(server: TensorRuntime, wire: str) -> Subject:
    metrics = f"http://{server.http}/metrics"
    return adding(
        system=f"Headrace tensor runtime, {wire_of(wire)}",
        version="this one",
        pool=pool(wire, f"http://{server.http if wire == 'oip-http' else server.grpc}"),
        stream=requests.tensors("repeat", THREE, kind="infer_stream"),
        pieces=3,
        long=requests.tensors("repeat", ENDLESS, kind="infer_stream"),
        running=gauge(metrics, "headrace_tensor_in_flight"),
        signals=metrics,
        order="picky",
    )


@every_feature
@over_both_wires
async def test_conforms(running: TensorRuntime, wire: str, feature: str) -> None:
    await conforms(subject(running, wire), feature)
