"""Names and places through a real gateway that asks a recogniser over HTTP: the model has placeholders alone."""

import json
import re
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from adapters.http1.message import Response
from tests.support.processes import gateway
from tests.support.upstreams import Upstream, stream, upstream, whole

pytestmark = pytest.mark.timeout(900)
TEXT = "\U0001f600 Anna Schmidt (anna@example.com) lives in Görlitz. Anna Schmidt is well."


async def echo(body: dict[str, Any]) -> Response:
    text = body["messages"][-1]["content"]
    return stream(text) if body.get("stream") else whole(text)


async def analyze(body: dict[str, Any]) -> Response:
    """Find what Presidio finds in the text, with its fields."""
    assert body.keys() == {"text", "language", "entities", "score_threshold"}
    entities = [
        {"start": match.start(), "end": match.end(), "entity_type": kind, "score": 0.85, "analysis_explanation": None}
        for kind, name in (("PERSON", "Anna Schmidt"), ("LOCATION", "Görlitz"))
        for match in re.finditer(name, body["text"])
    ]
    return Response(200, [("content-type", "application/json")], json.dumps(entities).encode())


def files_with(folder: Path, value: bytes) -> list[Path]:
    """The files of a gateway that have a value."""
    return [path for path in folder.rglob("*") if path.is_file() and value in path.read_bytes()]


def settings(model: Upstream, presidio: str) -> dict[str, Any]:
    return {
        "pools": [
            {"name": "main", "endpoints": [f"{model.url}/v1"]},
            {"name": "presidio", "protocol": "http", "endpoints": [presidio]},
        ],
        "guards": [{"name": "people", "kind": "personal", "recogniser": {"model": "presidio", "timeout": "30s"}}],
        "models": [
            {"name": "chat", "guards": ["people"], "routes": [{"to": "main"}]},
            {"name": "presidio", "routes": [{"to": "presidio"}]},
        ],
        "tenants": [{"name": "acme", "models": ["chat"]}],
    }


async def test_names_reach_no_server_and_come_back(tmp_path: Path) -> None:
    async with upstream() as model, upstream() as presidio:
        model.behaviour, presidio.behaviour = echo, analyze
        async with gateway(tmp_path, settings(model, presidio.url)) as g:
            key = await g.key()
            messages: Any = [{"role": "user", "content": TEXT}]
            async with openai.AsyncOpenAI(base_url=f"{g.url}/v1", api_key=key, max_retries=0) as sdk:
                answer = await sdk.chat.completions.create(model="chat", messages=messages)
                assert answer.choices[0].message.content == TEXT
                events = await sdk.chat.completions.create(model="chat", messages=messages, stream=True)
                parts = [event.choices[0].delta.content or "" async for event in events if event.choices]
                assert "".join(parts).strip() == TEXT
                response = await sdk.responses.create(model="chat", input=TEXT)
                assert response.output_text == TEXT
            async with anthropic.AsyncAnthropic(base_url=g.url, auth_token=key, api_key=None, max_retries=0) as claude:
                message = await claude.messages.create(model="chat", messages=messages, max_tokens=99)
                assert message.content[0].text == TEXT  # type: ignore[union-attr]
        assert len(presidio.received) == 4
        sent = json.dumps(model.received, ensure_ascii=False)
        assert not [value for value in ("Anna", "Görlitz", "example.com") if value in sent]
        assert len(set(re.findall(r"<(?:PERSON|LOCATION|EMAIL)_\d{8}>", sent))) == 3
    assert not files_with(tmp_path, b"Anna")
