"""The API's root of each documented URL, with each dialect, for each operation."""

import json
from typing import Any

import pytest

from adapters.call import Call
from adapters.errors import InferenceError, Unavailable
from adapters.http1.client import Client
from adapters.requests import AppRequest, ModelRequest
from adapters.types import Deadline
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.upstreams.provided.openai import OpenAIBatches
from adapters.wire.anthropic import requests as messages
from adapters.wire.anthropic.message_request import TokenCount
from adapters.wire.failure_text import Scrubber
from adapters.wire.openai import chat as wire
from adapters.wire.openai.dialects import DIALECTS
from adapters.wire.responses import requests as responses
from config.schema.protocols.language import OpenAIProtocol

VERTEX = "/v1/projects/P/locations/L/endpoints/openapi"
WRITTEN = {
    "/v1": "", "/v3": "", "/api/v1": "/api", "/api/paas/v4": "/api/paas", "/compatible-mode/v1": "/compatible-mode",
    "/openai/v1": "", "/openai/v1/": "", "/v1beta/openai": "", "/v1beta/openai/": "", "/v1/openai": "", "/v1alpha": "",
    "/v1/ACCOUNT/GATEWAY/compat": "", VERTEX: VERTEX.removesuffix("/endpoints/openapi"), "/serving-endpoints": "",
    "/client/v4/accounts/A/ai/v1": "/client/v4/accounts/A/ai", "/inference/v1": "/inference",
}  # fmt: skip
"""A path that is the root, and the part of it that is not."""
PREFIXES = ("", "/", "/vllm", "/a/b", "/api/v1/namespaces/n/services/s:80/proxy", "/openai")
NAMES = ("auto", *DIALECTS)
CHAT = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]}'


class Recording(Client):
    """A client that sends nothing."""

    def __init__(self, path: str) -> None:
        super().__init__(f"http://host{path}")
        self.targets: list[str] = []

    async def request(self, method: bytes, target: bytes, *_: Any, **__: Any) -> Any:
        self.targets.append(target.decode())
        raise Unavailable("x")


OPERATIONS: dict[str, ModelRequest] = {
    "/chat/completions": wire.decode_chat(CHAT),
    "/completions": wire.decode_completion(b'{"model":"m","prompt":"x"}'),
    "/embeddings": wire.decode_embedding(b'{"model":"m","input":"x"}'),
    "/responses": responses.decode_native(b'{"model":"m","input":"x"}'),
    "/audio/speech": AppRequest(
        model="m", path="/v1/audio/speech", content_type="application/json", body=json.dumps({"model": "m"}).encode()
    ),
}


async def called(path: str, root: str | None, dialect: str) -> tuple[dict[str, str], str, str]:
    """The target of each operation, that of the tokens, and the API of batches."""
    client = Recording(path)
    options = OpenAIProtocol.model_validate({"dialect": dialect, "root": root, "passes": ["audio"]})
    adapter = OpenAIAdapter(client, options=options)
    call = Call(Deadline(client.now() + 9, 9, 9))
    counted = TokenCount(model="m", chat=messages.decode_message(CHAT))
    for request in (*OPERATIONS.values(), counted):
        with pytest.raises(InferenceError):
            await adapter.call(request, call)
    with pytest.raises(InferenceError):
        await OpenAIBatches(client, Scrubber(), root).state("b")
    *targets, tokens, batches = client.targets
    return dict(zip(OPERATIONS, targets, strict=True)), tokens, batches


@pytest.mark.parametrize("dialect", NAMES)
async def test_a_path_that_names_a_root_is_the_root_and_any_other_is_a_prefix(dialect: str) -> None:
    root_of = DIALECTS[dialect].root if dialect in DIALECTS else "/v1"
    cases: list[tuple[str, str | None, str, str]] = [
        (path, None, path.rstrip("/"), server) for path, server in WRITTEN.items()
    ]
    for prefix in PREFIXES:
        server = prefix.rstrip("/").removesuffix("/openai")
        cases.append((prefix, None, server + root_of, server))
        bare = prefix.rstrip("/")
        cases += [(prefix, "/", bare, bare), (prefix, "/x/y/", f"{bare}/x/y", bare)]
        cases.append((f"{bare}/x/y", "/x/y", f"{bare}/x/y", bare))
    for path, root, api, server in cases:
        targets, tokens, batches = await called(path, root, dialect)
        assert targets == {operation: api + operation for operation in OPERATIONS}, (path, root)
        assert tokens == f"{server}/tokenize"
        if root_of == "/v1":
            assert batches == f"{api}/batches/b", (path, root)
