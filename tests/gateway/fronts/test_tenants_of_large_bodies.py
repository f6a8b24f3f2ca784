"""A large body takes the turn of its client's tenant at the worker process, at each door."""

import itertools
import json
from typing import Any

import aiohttp
import pytest

from adapters import offload
from adapters.offload.jobs import CodecJob
from adapters.offload.worker_queue import WorkerQueue
from tests.support.doors import CHATS, MESSAGES, RESPONSES
from tests.support.gateways import Rig, config, listening

MANY = [{"role": "user", "content": "hi"}] * 4_000
BODIES: dict[str, Any] = {
    CHATS: {"model": "chat", "messages": MANY},
    MESSAGES: {"model": "chat", "max_tokens": 1, "messages": MANY},
    MESSAGES + "/count_tokens": {"model": "chat", "messages": MANY},
    RESPONSES: {"model": "chat", "input": MANY},
    "/v1/completions": {"model": "chat", "prompt": [1] * 25_000},
    "/v1/embeddings": {"model": "chat", "input": [1] * 25_000},
    "/v1/models/chat:predict": {"instances": [0.5] * 25_000},
}


async def test_each_door_names_the_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[str] = []

    async def run(lane: WorkerQueue, job: CodecJob) -> Any:
        jobs.append(job.tenant)
        return job.call.function(*job.call.args, **job.call.kwargs)

    one = Rig(config(tenants=[{"name": name, "models": ["*"]} for name in ("acme", "beta")]), {"main": []})
    headers = {"authorization": f"Bearer {one.key.plaintext}", "content-type": "application/json"}
    monkeypatch.setattr(WorkerQueue, "run", run)
    # One connection, as that of a proxy: a request leaves nothing for the next one.
    connector = aiohttp.TCPConnector(limit=1)
    async with (
        listening(one, max_body=2**24) as url,
        aiohttp.ClientSession(url, connector=connector, headers=headers) as http,
    ):
        for path, tenant in itertools.product(BODIES, ("acme", "beta")):
            jobs.clear()
            one.hold(tenant=tenant)
            data = json.dumps(BODIES[path]).encode()
            assert len(data) >= offload.LARGE
            async with http.post(path, data=data) as answer:
                text = await answer.text()
            assert set(jobs) == {tenant}, (path, answer.status, text)
