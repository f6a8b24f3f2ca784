"""A guard of personal data before the real Presidio: names are masked, come back, and reach no model."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import openai

from adapters.http1.message import Response
from tests.servers.presidio import presidio
from tests.servers.shared import shared
from tests.support.processes import gateway
from tests.support.upstreams import upstream, whole

TEXT = "\U0001f600 Anna Schmidt wrote to anna@example.com. Zoë and Anna Schmidt live in Görlitz."


async def echo(body: dict[str, Any]) -> Response:
    return whole(body["messages"][-1]["content"])


async def test_a_guard_masks_the_entities_of_presidio(tmp_path: Path) -> None:
    server = shared(presidio)
    async with upstream() as model:
        model.behaviour = echo
        settings = {
            "pools": [
                {"name": "main", "endpoints": [f"{model.url}/v1"]},
                {"name": "names", "protocol": "http", "endpoints": [server.url()]},
            ],
            "guards": [{"name": "people", "kind": "personal", "recogniser": {"model": "names", "timeout": "60s"}}],
            "models": [
                {"name": "chat", "guards": ["people"], "routes": [{"to": "main"}]},
                {"name": "names", "routes": [{"to": "names"}]},
            ],
            "tenants": [{"name": "acme", "models": ["chat"]}],
        }
        async with (
            gateway(tmp_path, settings) as g,
            openai.AsyncOpenAI(base_url=f"{g.url}/v1", api_key=await g.key(), max_retries=0) as sdk,
        ):
            messages: Any = [{"role": "user", "content": TEXT}]
            answer = await sdk.chat.completions.create(model="chat", messages=messages)
            assert answer.choices[0].message.content == TEXT
        sent = json.dumps(model.received, ensure_ascii=False)
        assert not [name for name in ("Anna", "Zoë", "Görlitz", "example.com") if name in sent]
        assert (sent.count("<PERSON_"), sent.count("<LOCATION_"), sent.count("<EMAIL_")) == (3, 1, 1)


async def test_unknown_languages_and_entities_are_refused() -> None:
    server = shared(presidio)
    async with aiohttp.ClientSession(server.url()) as http:
        for fields in ({"language": "xx"}, {"language": "en", "entities": ["UNKNOWN"]}):
            async with http.post("/analyze", json={"text": "Anna Schmidt", **fields}) as response:
                assert response.status == 400
                assert (await response.json())["error"]
