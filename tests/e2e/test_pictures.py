"""Pictures through every door of a gateway, to the bundled engine."""

from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from tests.support.processes import GatewayProcess, gateway
from tests.support.seeing_models import encoded, picture, write_seeing_model

pytestmark = pytest.mark.timeout(1800)
TEXT = "Which is it?"
DAMAGED = b64encode(encoded(picture(100, 60))[:300]).decode()


def file(seed: int) -> str:
    """Another picture for each seed, so that none is in the prefix cache."""
    return b64encode(encoded(picture(100, 60, seed))).decode()


class Door(NamedTuple):
    """A path, the body for a picture in base64, and where the answer has the tokens of the prompt."""

    path: str
    body: Any
    tokens: tuple[str, ...]

    def read(self, answer: Any) -> Any:
        for name in self.tokens:
            answer = answer[name]
        return answer


def _openai(file: str) -> Any:
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{file}"}}
    turn = {"role": "user", "content": [part, {"type": "text", "text": TEXT}]}
    return {"model": "chat", "messages": [turn], "max_tokens": 4}


def _messages(file: str) -> Any:
    part = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": file}}
    turn = {"role": "user", "content": [part, {"type": "text", "text": TEXT}]}
    return {"model": "chat", "messages": [turn], "max_tokens": 4}


def _responses(file: str) -> Any:
    part = {"type": "input_image", "image_url": f"data:image/png;base64,{file}", "detail": "auto"}
    turn = {"role": "user", "content": [part, {"type": "input_text", "text": TEXT}]}
    return {"model": "chat", "input": [turn], "max_output_tokens": 4}


def _gemini(file: str) -> Any:
    parts = [{"inlineData": {"mimeType": "image/png", "data": file}}, {"text": TEXT}]
    return {"contents": [{"role": "user", "parts": parts}], "generationConfig": {"maxOutputTokens": 4}}


def _converse(file: str) -> Any:
    parts = [{"image": {"format": "png", "source": {"bytes": file}}}, {"text": TEXT}]
    return {"messages": [{"role": "user", "content": parts}], "inferenceConfig": {"maxTokens": 4}}


DOORS = {
    "chats": Door("/v1/chat/completions", _openai, ("usage", "prompt_tokens")),
    "messages": Door("/v1/messages", _messages, ("usage", "input_tokens")),
    "responses": Door("/v1/responses", _responses, ("usage", "input_tokens")),
    "gemini": Door("/v1beta/models/chat:generateContent", _gemini, ("usageMetadata", "promptTokenCount")),
    "converse": Door("/model/chat/converse", _converse, ("usage", "inputTokens")),
}


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    folder = write_seeing_model(tmp_path / "seeing").folder
    runtime = {"kind": "llm", "model": str(folder), "kv_cache": "16MiB"}
    configuration: dict[str, Any] = {
        "pools": [{"name": "small", "runtime": runtime}],
        "models": [{"name": "chat", "routes": [{"to": "small"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    async with gateway(tmp_path, configuration) as made:
        await made.printed("Ready.")
        yield made
        await made.until_idle()


async def test_every_door_takes_a_picture_and_counts_its_tokens(running: GatewayProcess) -> None:
    headers = {"authorization": f"Bearer {await running.key()}"}
    counts: dict[str, int] = {}
    async with aiohttp.ClientSession(headers=headers) as session:
        for seed, (name, door) in enumerate(DOORS.items()):
            async with session.post(running.url + door.path, json=door.body(file(seed))) as response:
                answer = await response.json()
                assert response.status == 200, (name, answer)
                counts[name] = door.read(answer)
        for name, door in DOORS.items():
            async with session.post(running.url + door.path, json=door.body(DAMAGED)) as response:
                answer = await response.json()
                assert response.status == 400, (name, answer)
                assert "Picture 1 of the request: " in str(answer), (name, answer)
                assert "damaged" in str(answer), (name, answer)
    assert counts["chats"] > 7 * 4
    assert len(set(counts.values())) == 1
