"""The official clients of hosted APIs, unchanged: before the stubs, which proves those, and before the gateway."""

import asyncio
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadtests import venvs
from tests.servers.programs import __path__ as programs
from tests.support.classifiers import classifier, logits_of
from tests.support.processes import gateway
from tests.support.providers.abilities import Stage, stage
from tests.support.providers.openai_like import KEY, ROWS
from tests.support.providers.script import Counts, Reply, Script, ToolCall
from tests.support.providers.table import PROVIDERS

CLIENTS = {
    "groq": "groq==1.7.0",
    "together": "together==3.1.1",
    "fireworks": "fireworks-ai==1.2.30",
    "openrouter": "openrouter==1.3.84",
    "mistral": "mistralai==3.7.0",
    "openai": "openai==3.57.0",
    "cohere": "cohere==7.3.1",
}
OF = {row.name: row.name if row.name in CLIENTS else "openai" for row in ROWS if row.name != "azure"} | {
    "cohere": "openai"
}
"""The client of each provider of OpenAI's family. Azure's sends its key in another header, Cohere's has other chats."""
CALLS = (ToolCall("call_a1", "look", '{"a":"käse"}'), ToolCall("call_b2", "look", '{"a":"b"}'))
COUNTS = Counts(20, 0, 9, 0)
EXPECTED = [
    {"text": "hello", "calls": []},
    {"text": "", "calls": [[call.id, call.name, json.loads(call.arguments)] for call in CALLS]},
    {"text": "so", "calls": [[call.id, call.name, json.loads(call.arguments)] for call in CALLS]},
]


def replies() -> list[Reply]:
    return [Reply(text, calls=calls, counts=COUNTS) for text, calls in (("hello", ()), ("", CALLS), ("so", CALLS))]


async def answers(name: str, url: str, key: str, model: str) -> Any:
    """What the client reads, without the tokens, and the tokens of each answer."""
    client = OF[name]
    read = await printed(client, "provider_sdk.py", client, url, key, model)
    return read, [answer.pop("tokens") for answer in read]


async def printed(client: str, program: str, *arguments: str) -> Any:
    """The JSON that a program prints in the client's own environment."""
    folder = await asyncio.to_thread(venvs.ensure, f"sdk-{client}", [CLIENTS[client]])
    process = await asyncio.create_subprocess_exec(
        str(folder / "bin/python"), str(Path(programs[0]) / program), *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-2000:]
    return json.loads(out)


@pytest.mark.parametrize("name", [name for name in OF if "tools" not in PROVIDERS[name].lacks])
async def test_a_client_reads_the_stub_and_the_gateway_alike(name: str) -> None:
    provider = PROVIDERS[name]
    script = Script()
    script.replies.extend(replies())
    async with provider.serve(script) as url:
        alone, tokens = await answers(name, url, KEY, provider.model)
    assert script.refused == []
    assert alone == EXPECTED
    assert tokens[:2] == [[20, 9]] * 2
    async with stage(provider) as on:
        on.play(*replies())
        through, counted = await answers(name, f"{on.door.url}/v1", on.door.rig.key.plaintext, "chat")
        assert through == EXPECTED
        assert counted == tokens
        _billed(on)


async def test_cohere_s_client_ranks_through_the_gateway() -> None:
    cohere, expected = PROVIDERS["cohere"], {"results": [[1, 1.0]], "units": 1.0}

    def passing(url: str) -> dict[str, Any]:
        pool = dict(cohere.pool(url))
        return pool | {"protocol": pool["protocol"] | {"passes": ["rerank"]}}

    async with cohere.serve(Script()) as url:
        root = url.removesuffix("/compatibility/v1")
        assert await printed("cohere", "cohere_rerank.py", root, KEY, "rerank-v4") == expected
    async with stage(replace(cohere, pool=passing)) as on:
        key = on.door.rig.key.plaintext
        assert await printed("cohere", "cohere_rerank.py", on.door.url, key, "chat") == expected
        assert on.script.refused == []


async def test_cohere_s_client_ranks_with_the_engine(tmp_path: Path) -> None:
    documents = ["a tree", "Paris, a capital", "x"]
    folder = classifier(tmp_path / "ranker")
    configuration: dict[str, Any] = {
        "pools": [{"name": "llm", "runtime": {"kind": "llm", "model": str(folder), "dtype": "float32"}}],
        "models": [{"name": "ranker", "routes": [{"to": "llm"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    async with gateway(tmp_path, configuration) as running:
        await running.printed("Ready.")
        read = await printed("cohere", "cohere_of_engine.py", running.url, await running.key(), "ranker")
    scores = [1 / (1 + math.exp(-logit)) for [logit] in logits_of(folder, [("a capital", text) for text in documents])]
    best = sorted(range(3), key=lambda at: -scores[at])
    assert [at for at, _ in read["second"]] == best[:2]
    assert [(at, text) for at, _, text in read["first"]] == [(at, documents[at]) for at in best]
    assert [score for _, score, _ in read["first"]] == pytest.approx([scores[at] for at in best], abs=1e-4)
    assert read["tokens"] > 0
    assert read["refused"] == "documents"


def _billed(on: Stage) -> None:
    assert on.script.refused == []
    for record in on.door.rig.log.records[-3:]:
        assert record.usage is not None
        assert (record.usage.prompt_tokens, record.usage.completion_tokens, record.usage.exact) == (20, 9, True)
