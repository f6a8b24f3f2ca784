"""TorchServe, over both of its wires."""

from collections.abc import Iterator

import pytest

from adapters.conformance.subject import Subject, pool
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import summing
from tests.servers.sums import SUM_OF_X
from tests.servers.torchserve import VERSION, TorchServe, torchserve

NAMES = {"torchserve": "REST", "torchserve-grpc": "gRPC"}


@pytest.fixture(scope="module")
def running() -> Iterator[TorchServe]:
    with torchserve(tokens=False) as server:
        yield server


def subject(server: TorchServe, wire: str) -> Subject:
    return summing(
        "probe",
        system=f"TorchServe, {NAMES[wire]}",
        version=VERSION,
        pool=pool(server.pool(wire, **SUM_OF_X)["protocol"], server.url if wire == "torchserve" else server.grpc),
        signals=f"{server.server.url(1)}/models/probe",
        signals_server="torchserve",
        order="probe",
    )


@every_feature
@pytest.mark.parametrize("wire", NAMES)
async def test_conforms(running: TorchServe, wire: str, feature: str) -> None:
    await conforms(subject(running, wire), feature)
