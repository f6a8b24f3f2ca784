"""A route's rewrite on every operation of a model: each upstream body holds only fields that its operation has."""

from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters import ignored_fields
from adapters.fake import FakeAdapter, Script
from adapters.requests import AppRequest, ChatRequest, CompletionRequest, EmbeddingRequest, GenerateRequest
from adapters.wire.openai import chat as wire
from adapters.wire.openai.model_field import CODEC, PASSTHROUGH
from config.schema.config import RewriteConfig
from config.schema.rewrite import twins
from policies.routing.rewrite import Rewrite
from tests.support.gateways import Rig, chat, config, listening

REWRITE: dict[str, Any] = {
    "caps": {"max_tokens": 100},
    "defaults": {"temperature": 0.2, "reasoning_effort": "low", "house_field": 1},
    "force": {"seed": 1, "store": False, "user": "u"},
    "drop": ["logit_bias"],
}
GENERAL = {"house_field": 1}
"""A field of a server's own extension, in no table."""
BODIES: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": "a"},
    "/v1/moderations": {"input": "a"},
    "/v1/images/generations": {"prompt": "a"},
    "/v1/audio/speech": {"input": "a", "voice": "b"},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [1]},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
    "/v1/score": {"text_1": "a", "text_2": "b"},
}
ADDED: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"user": "u"},
    "/v1/images/generations": {"user": "u"},
    "/v1/rerank": {"user": "u"},
    "/v1/score": {"user": "u"},
}


@pytest.fixture
async def rig() -> Rig:
    answer = b'{"data": [], "object": "list", "model": "chat", "results": [], "id": "1"}'
    models = [{"name": "chat", "routes": [{"to": "main", "rewrite": REWRITE}]}]
    return Rig(config(models=models), {"main": [FakeAdapter(Script(chunks=(answer,)))]})


def sent(rig: Rig) -> dict[str, Any]:
    fake = rig.adapters["main"][0]
    request = fake.calls[-1].request
    if isinstance(request, AppRequest):
        written = request.body
    else:
        assert isinstance(request, GenerateRequest)
        written = wire.upstream_body(request, None)
    return msgspec.json.decode(written, type=dict[str, Any])


@pytest.mark.parametrize("path", BODIES)
async def test_an_operation_receives_only_its_own_fields(rig: Rig, path: str) -> None:
    body = {"model": "chat", **BODIES[path]}
    async with listening(rig) as url, aiohttp.ClientSession() as http:
        headers = {"authorization": f"Bearer {rig.key.plaintext}"}
        async with http.post(url + path, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
    assert sent(rig) == {**body, **GENERAL, **ADDED.get(path, {})}


async def test_a_chat_receives_every_field_of_the_rewrite(rig: Rig) -> None:
    async with listening(rig) as url, aiohttp.ClientSession() as http:
        headers = {"authorization": f"Bearer {rig.key.plaintext}"}
        body = {"model": "chat", "messages": [{"role": "user", "content": "a"}], "max_tokens": 9999, "logit_bias": {}}
        async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
    expected = {"messages": body["messages"], "model": "chat", "max_tokens": 100}
    assert sent(rig) == expected | REWRITE["force"] | REWRITE["defaults"]


# ── every field of every operation ────────────────────────────────────────────────────────────────────

NAMED = sorted(ignored_fields.FIELDS - {"model", "messages", "prompt", "stream", "stream_options"})
PATHS = sorted(ignored_fields._TABLE)
NUMBERS = {"n": 1, "max_tokens": 1, "max_completion_tokens": 1, "max_output_tokens": 1, "n_predict": 1}


def test_every_operation_has_a_table() -> None:
    paths = {kind.path for kind in (ChatRequest, CompletionRequest, EmbeddingRequest)}
    assert set(PATHS) == {*PASSTHROUGH, *paths, "/responses"}


@given(st.sampled_from(PATHS), st.sampled_from(NAMED), st.sampled_from(["force", "defaults"]))
def test_a_rewrite_adds_a_field_only_where_the_operation_has_it(path: str, name: str, kind: str) -> None:
    rewrite = Rewrite(RewriteConfig.model_validate({kind: {name: NUMBERS.get(name, "x")}}))
    request = AppRequest(model="m", path=path, codec=CODEC, body=b'{"model":"m"}')
    added = rewrite({"model": Raw(b'"m"')}, lambda field: CODEC.accepts(request, field)).keys() - {"model"}
    table = ignored_fields.fields_of(path)
    assert added <= table
    assert bool(added) == bool(twins(name) & table)


def test_a_cap_reaches_an_operation_by_the_operations_own_name() -> None:
    rewrite = Rewrite(RewriteConfig(caps={"max_completion_tokens": 5}))
    request = chat()
    assert "max_completion_tokens" in rewrite(request.fields, lambda name: request.codec.accepts(request, name))
    completion = wire.decode_completion(b'{"model": "m", "prompt": "a"}')
    fields = rewrite(completion.fields, lambda name: completion.codec.accepts(completion, name))
    assert fields["max_tokens"] == Raw(b"5")
    assert "max_completion_tokens" not in fields
