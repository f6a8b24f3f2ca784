"""Google's libraries before the stand-in of Google's API, which proves the stand-in, and before the gateway."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.servers.stand_ins.anthropic import KEY as CLAUDE_KEY
from tests.servers.stand_ins.anthropic import MODEL as CLAUDE
from tests.servers.stand_ins.anthropic import anthropic
from tests.support.agents.installed import installed
from tests.support.processes import gateway
from tests.support.providers.gemini import KEY, LOCATION, MODEL, PROJECT, TOKEN, gemini

FOLDER = Path("tests/support/agents")
TWICE = [["weather", "time"], ["weather", "time"]]
CHATS = {"text": "hi there", "finish": "STOP", "counts": True, "stream": "a b c", "calls": TWICE, "count": True}
EACH = [[0.001, 0.002], [0.002, 0.003]]
ALL = CHATS | {
    "vectors": EACH,
    "schema": {"said": "hi"},
    "long": [400, "INVALID_ARGUMENT"],
    "quota": [429, "RESOURCE_EXHAUSTED"],
}
TOGETHER = {"vectors": [[0.003, 0.004]]}
"""The libraries join texts to one content for a model with Google's name; at the Gemini API, that for Python only."""
THROUGH = ALL | {"quota": [503, "UNAVAILABLE"]}
"""A quota of the gateway's own account is not the client's."""
LIBRARIES = ("google-genai", "google-genai-js")
clouds = pytest.mark.parametrize("cloud", ["gemini", "vertex", "express"])
libraries = pytest.mark.parametrize("library", LIBRARIES)


async def calls(library: str, url: str, key: str, model: str, kind: str, cloud: str) -> Any:
    """The results of the library's script."""
    programs = (await asyncio.to_thread(installed, library)).programs
    in_js = programs / "../../google_calls.mjs"
    command = ["node", in_js] if library.endswith("-js") else [programs / "python", FOLDER / "google_calls.py"]
    variables = {"HEADRACE_URL": url, "HEADRACE_KEY": key, "HEADRACE_PROJECT": PROJECT, "HEADRACE_LOCATION": LOCATION}
    process = await asyncio.create_subprocess_exec(
        *map(str, command), model, kind, cloud,
        env={**os.environ, **variables}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(out)


def configuration(folder: Path, url: str, key: str, **pool: Any) -> dict[str, Any]:
    """A gateway whose one model is at this address. The key of its pool is in a file."""
    (folder / "provider.key").write_text(key)
    pool["key"] = f"file:{folder / 'provider.key'}"
    return {
        "auth": {"demo_key": True},
        "pools": [{"name": "up", "endpoints": [url], **pool}],
        "models": [{"name": "chat", "routes": [{"to": "up"}]}],
        "tenants": [{"name": "demo", "models": ["*"]}],
    }


@clouds
@libraries
async def test_the_stand_in_is_google_s_to_its_own_library(library: str, cloud: str) -> None:
    expected = ALL | ({} if (library, cloud) == ("google-genai-js", "gemini") else TOGETHER)
    async with gemini() as server:
        key = TOKEN if cloud == "vertex" else KEY
        assert await calls(library, server.url, key, MODEL, "all", cloud) == expected


@pytest.mark.parametrize("cloud", ["gemini", "vertex"])
@libraries
async def test_the_stand_in_stores_contents_for_the_library(library: str, cloud: str) -> None:
    async with gemini() as server:
        key = TOKEN if cloud == "vertex" else KEY
        stored = await calls(library, server.url, key, MODEL, "caches", cloud)
        texts = server.caches.created[0]["systemInstruction"]["parts"]
    assert stored == {"tokens": [3001, 3001], "text": "hi there", "longer": True, "same": True, "lost": 403}
    assert texts == [{"text": "words " * 3000}]


@pytest.mark.parametrize("pool", ["gemini", "vertex"])
@clouds
@libraries
async def test_the_library_works_over_google_s_models(library: str, cloud: str, pool: str, tmp_path: Path) -> None:
    async with gemini() as server:
        protocol = {"name": "vertex", "project": PROJECT, "location": LOCATION} if pool == "vertex" else pool
        key = TOKEN if pool == "vertex" else KEY
        settings = configuration(tmp_path, server.url, key, protocol=protocol, model=MODEL)
        async with gateway(tmp_path, settings) as g:
            assert await calls(library, g.url, await g.demo_key(), "chat", "all", cloud) == THROUGH


@clouds
@libraries
async def test_the_library_works_over_another_provider(library: str, cloud: str, tmp_path: Path) -> None:
    async with anthropic() as server:
        settings = configuration(tmp_path, server.url, CLAUDE_KEY, protocol="anthropic", model=CLAUDE)
        async with gateway(tmp_path, settings) as g:
            assert await calls(library, g.url, await g.demo_key(), "chat", "chats", cloud) == CHATS
