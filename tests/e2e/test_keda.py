"""A pool at zero behind KEDA: the test is KEDA, with a client of the real proto, and starts the server itself."""

import asyncio
from pathlib import Path
from typing import Any

import grpc

from adapters.wire.protos.keda import SCALER, externalscaler
from tests.support.command_runtimes import pool
from tests.support.processes import gateway
from tests.support.upstreams import upstream


def call(channel: grpc.aio.Channel, name: str) -> Any:
    method = SCALER[name]
    kind = channel.unary_stream if method.streams else channel.unary_unary
    return kind(method.path, lambda m: m.SerializeToString(), method.response.FromString)


async def test_a_request_at_a_remote_pool_of_zero_wakes_keda_and_is_answered(tmp_path: Path) -> None:
    endpoints = tmp_path / "endpoints.yaml"
    endpoints.write_text("endpoints: []")
    scale = {"min": 0, "max": 3, "places": 4, "idle": "3s"}
    configuration = {
        "listen": {"http": "127.0.0.1:0", "admin": "127.0.0.1:0", "keda": "127.0.0.1:0"},
        "workers": 2,
        "auth": {"demo_key": True},
        "pools": [{"name": "remote", "discover": {"file": str(endpoints)}, "scale": scale}],
        "models": [{"name": "chat", "routes": [{"to": "remote"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    async with upstream() as up, gateway(tmp_path, configuration) as g:
        address = (await g.printed(r"KEDA's external scaler listens on (\S+)"))[1]
        key = await g.demo_key()
        reference = externalscaler.ScaledObjectRef(name="remote", scalerMetadata={"pool": "remote"})
        async with grpc.aio.insecure_channel(address) as channel, asyncio.timeout(300):
            active = call(channel, "StreamIsActive")(reference)
            assert (await active.read()).result is False
            request = asyncio.create_task(g.chat(key))
            assert (await active.read()).result is True, "KEDA is not woken"
            metrics = externalscaler.GetMetricsRequest(scaledObjectRef=reference, metricName="headrace-replicas")
            while (await call(channel, "GetMetrics")(metrics)).metricValues[0].metricValueFloat < 1:
                await asyncio.sleep(0.1)
            assert not request.done()
            endpoints.write_text(f"endpoints: [{up.url}]")  # as KEDA's Deployment would
            assert (await request)[0] == 200
            assert (await active.read()).result is False, "it is not idle"
            assert 'headrace_replicas_desired{pool="remote"} 0.0' in await g.metrics()
            assert pool(await g.state())["start_seconds"] > 0
