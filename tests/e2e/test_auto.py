"""A gateway without a configured protocol detects its pools' servers, and operators see the result."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.adapters.detection.paths import answering
from tests.servers.repositories import for_headrace
from tests.support.processes import gateway
from tests.support.tensor_runtime import tensor_runtime

pytestmark = pytest.mark.timeout(1800)

ROW = [[*range(16)]]
SUM = {
    "inputs": [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": ROW} for name in ("INPUT0", "INPUT1")],
}


async def test_tensor_servers_are_detected_over_both_wires_and_an_unknown_server_is_not(tmp_path: Path) -> None:
    repository = for_headrace(tmp_path / "models", ("add_sub",))
    with tensor_runtime("--repository", str(repository)) as runtime:
        async with answering({}) as unknown:
            endpoints = {"http": f"http://{runtime.http}", "grpc": f"http://{runtime.grpc}", "other": unknown}
            probe = {"interval": "200ms", "timeout": "20s", "unhealthy_after": 1}
            written: dict[str, Any] = {
                "pools": [
                    {"name": name, "protocol": "auto", "probe": probe, "endpoints": [url]}
                    for name, url in endpoints.items()
                ],
                "models": [
                    {"name": name, "routes": [{"to": name, "rewrite": {"model": "add_sub"}}]} for name in endpoints
                ],
                "tenants": [{"name": "demo", "models": ["*"]}],
            }
            async with gateway(tmp_path, written) as g:
                key = await g.key("demo")
                await g.until("{e['pool'] for e in s['endpoints'] if e['health'] == 'healthy'} == {'http', 'grpc'}")
                async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http:
                    for model in ("http", "grpc"):
                        async with http.post(f"{g.url}/v2/models/{model}/infer", json=SUM) as response:
                            answer = await response.json()
                        assert response.status == 200, answer
                        assert answer["outputs"][0]["data"] == [2 * number for number in range(16)]
                    async with http.post(f"{g.url}/v2/models/other/infer", json=SUM) as response:
                        assert response.status == 503
                state = await g.state()
                detected = {one["pool"]: (one["detected"] or {}).get("protocol") for one in state["endpoints"]}
                assert detected == {"http": {"name": "oip-http"}, "grpc": {"name": "oip-grpc"}, "other": None}
