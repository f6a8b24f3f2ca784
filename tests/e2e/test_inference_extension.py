"""Headers of Kubernetes' Gateway API Inference Extension, where a client sends them."""

from pathlib import Path
from typing import Any

import aiohttp

from tests.support.processes import gateway, minimal
from tests.support.upstreams import upstream

HEADERS = {
    "x-gateway-destination-endpoint": "127.0.0.1:1",
    "x-gateway-destination-endpoint-subset": "127.0.0.1:1",
    "x-gateway-destination-endpoint-served": "127.0.0.1:1",
    "x-gateway-model-name-rewrite": "other",
    "x-gateway-inference-objective": "critical",
    "x-gateway-inference-fairness-id": "somebody",
}


async def test_a_client_names_no_host_and_no_model_by_a_picker_s_headers(tmp_path: Path) -> None:
    async with upstream() as server, gateway(tmp_path, minimal(server.url)) as running:
        headers = {"authorization": f"Bearer {await running.key()}", **HEADERS}
        body: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.post(f"{running.url}/v1/chat/completions", json=body) as answer,
        ):
            assert answer.status == 200
            assert not HEADERS.keys() & {name.lower() for name in answer.headers}
    assert server.received[-1]["model"] == "chat"
    assert not HEADERS.keys() & server.headers[-1].keys()
