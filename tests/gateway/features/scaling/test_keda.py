"""KEDA's external scaler, called by a client that grpcio's compiler generates from the proto."""

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_tools import protoc

import adapters.wire.protos.keda as keda
from gateway.features.scaling.keda import METRIC, MOST_STREAMS, KedaScaler, keda_server
from tests.support.fleets import Fleet

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The generated modules: messages and stubs."""
    folder = tmp_path_factory.mktemp("keda")
    source = Path(keda.__file__).parent
    arguments = ["", f"-I{source}", f"--python_out={folder}", f"--grpc_python_out={folder}", "externalscaler.proto"]
    assert protoc.main(arguments) == 0
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("externalscaler_pb2"), importlib.import_module("externalscaler_pb2_grpc")
    finally:
        sys.path.remove(str(folder))


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(min=0, max=5, places=4, idle="30s")


@pytest.fixture
async def stub(generated: Any, fleet: Fleet) -> AsyncIterator[Any]:
    await fleet.run(2)
    server = keda_server(fleet.autoscaler)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    async with grpc.aio.insecure_channel(f"{host}:{port}") as channel:
        yield generated[1].ExternalScalerStub(channel)
    await server.aclose()


def reference(generated: Any, pool: str = "main") -> Any:
    return generated[0].ScaledObjectRef(name="workers", namespace="models", scalerMetadata={"pool": pool})


async def test_the_metric_is_the_decision(generated: Any, fleet: Fleet, stub: Any) -> None:
    [spec] = (await stub.GetMetricSpec(reference(generated))).metricSpecs
    assert (spec.metricName, spec.targetSizeFloat) == (METRIC, 1.0)
    request = generated[0].GetMetricsRequest(scaledObjectRef=reference(generated), metricName=spec.metricName)
    assert (await stub.IsActive(reference(generated))).result is False
    [value] = (await stub.GetMetrics(request)).metricValues
    assert (value.metricName, value.metricValueFloat, value.metricValue) == (METRIC, 0.0, 0)
    await fleet.run(30, in_flight=12)
    assert (await stub.IsActive(reference(generated))).result is True
    [value] = (await stub.GetMetrics(request)).metricValues
    assert value.metricValueFloat == len(fleet.replicas) >= 3


async def test_a_request_at_a_pool_of_zero_is_pushed(generated: Any, fleet: Fleet, stub: Any) -> None:
    stream = stub.StreamIsActive(reference(generated))
    async with asyncio.timeout(300):
        assert (await stream.read()).result is False
        await fleet.run(0.25, waiting=1)
        assert (await stream.read()).result is True
        await fleet.run(60)
        assert (await stream.read()).result is False
    stream.cancel()


async def test_a_trigger_without_a_pool_is_refused_with_the_names(generated: Any, stub: Any) -> None:
    for name in ("", "other"):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.IsActive(reference(generated, name))
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "main" in (error.value.details() or "")


async def test_streams_are_bounded_and_end_with_their_clients(
    generated: Any, fleet: Fleet, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.features.scaling.keda.MOST_STREAMS", 2)
    streams = [stub.StreamIsActive(reference(generated)) for _ in range(2)]
    for stream in streams:
        await stream.read()
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.StreamIsActive(reference(generated)).read()
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    for stream in streams:
        stream.cancel()
    async with asyncio.timeout(300):
        while True:  # the places are free again
            try:
                await stub.StreamIsActive(reference(generated)).read()
                break
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.05)


async def test_another_service_and_a_malformed_message_are_refused(fleet: Fleet) -> None:
    await fleet.run(1)
    server = keda_server(fleet.autoscaler)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    async with grpc.aio.insecure_channel(f"{host}:{port}") as channel:
        for path, code in (
            ("/inference.GRPCInferenceService/ServerLive", grpc.StatusCode.UNIMPLEMENTED),
            ("/externalscaler.ExternalScaler/IsActive", grpc.StatusCode.INVALID_ARGUMENT),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await channel.unary_unary(path)(b"\xff\xff\xff")
            assert error.value.code() == code
    await server.aclose()


def test_the_published_calls_are_all_served(fleet: Fleet) -> None:
    assert set(KedaScaler(fleet.autoscaler)._calls) == {method.path for method in keda.SCALER.values()}
    assert MOST_STREAMS >= 100
