"""Gateways with guards on a route, and what clients receive from them."""

from typing import Any

import aiohttp

from adapters.fake import FakeAdapter, Script
from tests.support.gateways import Rig, config, listening

WORDS: dict[str, Any] = {"name": "words", "kind": "words", "words": ["secret plan", "zebra"]}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": {**CHAT, "max_tokens": 99},
    "/v1/responses": {"input": "hi", "store": False},
    "/v1beta/models/chat:generateContent": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}


def guarded(*scripts: Script, guards: list[dict[str, Any]] | None = None, **pool: Any) -> Rig:
    """A gateway with guards of the only model; `pool` are fields of its pool."""
    named = [WORDS] if guards is None else guards
    configuration = config(
        guards=named,
        pools=[{"name": "main", "endpoints": ["http://127.0.0.1:9"], **pool}],
        models=[{"name": "chat", "guards": [guard["name"] for guard in named], "routes": [{"to": "main"}]}],
    )
    return Rig(configuration, {"main": [FakeAdapter(*scripts)]})


async def received(one: Rig, path: str, count: int = 1, **fields: Any) -> list[tuple[int, str, dict[str, str]]]:
    """Send a request so many times. Returns the status, the body and the headers of each response."""
    responses = []
    async with listening(one, max_body=10_000_000) as url, aiohttp.ClientSession() as http:
        http.headers["authorization"] = f"Bearer {one.key.plaintext}"
        body = {**({} if "/models/" in path else {"model": "chat"}), **BODIES.get(path, {}), **fields}
        for _ in range(count):
            async with http.post(url + path, json=body) as response:
                responses.append((response.status, await response.text(), dict(response.headers)))
        await one.until_idle()
    return responses
