"""google-genai before the stand-in of Google's API, which proves the stand-in, and before the gateway."""

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

SCRIPT = Path("tests/support/agents/google_calls.py")
TWICE = [["weather", "time"], ["weather", "time"]]
CHATS = {"text": "hi there", "finish": "STOP", "counts": True, "stream": "a b c", "calls": TWICE, "count": True}
ALL = CHATS | {
    "vectors": [[0.003, 0.004]],  # the library joins texts to one content
    "schema": {"said": "hi"},
    "long": [400, "INVALID_ARGUMENT"],
    "quota": [429, "RESOURCE_EXHAUSTED"],
}
THROUGH = ALL | {
    "vectors": [[0.001, 0.002], [0.002, 0.003]],  # it joins no texts for a model without Google's name
    "quota": [503, "UNAVAILABLE"],  # a quota of the gateway's own account is not the client's
}


async def calls(url: str, key: str, model: str, kind: str) -> Any:
    """The results of the script."""
    python = installed("google-genai").programs / "python"
    variables = {**os.environ, "HEADRACE_URL": url, "HEADRACE_KEY": key}
    process = await asyncio.create_subprocess_exec(
        str(python), str(SCRIPT), model, kind,
        env=variables, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
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


async def test_the_stand_in_is_google_s_to_its_own_library() -> None:
    async with gemini() as server:
        assert await calls(server.url, KEY, MODEL, "all") == ALL


@pytest.mark.parametrize("cloud", ["gemini", "vertex"])
async def test_the_library_works_over_google_s_models(cloud: str, tmp_path: Path) -> None:
    async with gemini() as server:
        protocol = {"name": "vertex", "project": PROJECT, "location": LOCATION} if cloud == "vertex" else cloud
        key = TOKEN if cloud == "vertex" else KEY
        settings = configuration(tmp_path, server.url, key, protocol=protocol, model=MODEL)
        async with gateway(tmp_path, settings) as g:
            assert await calls(g.url, await g.demo_key(), "chat", "all") == THROUGH


async def test_the_library_works_over_another_provider(tmp_path: Path) -> None:
    async with anthropic() as server:
        settings = configuration(tmp_path, server.url, CLAUDE_KEY, protocol="anthropic", model=CLAUDE)
        async with gateway(tmp_path, settings) as g:
            assert await calls(g.url, await g.demo_key(), "chat", "chats") == CHATS
