"""The API's root of each documented URL, with each dialect, for each operation."""

import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from openai import AsyncOpenAI

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
from adapters.wire.openai.dialects import of_host
from adapters.wire.openai.providers import DIALECTS, HOSTED
from adapters.wire.responses import requests as responses
from config.schema.protocols.language import OpenAIProtocol
from tests.adapters.detection.paths import answering
from tests.support.openai_answers import BODY

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
        (path, None, path.rstrip("/"), min(server, path.rstrip("/").removesuffix(root_of), key=len))
        for path, server in WRITTEN.items()
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


DOCUMENTED = {
    "openai": "https://api.openai.com/v1",
    "azure": "https://r.openai.azure.com/openai/v1/",
    "mistral": "https://api.mistral.ai/v1",
    "groq": "https://api.groq.com/openai/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai/",
    "vertex": f"https://l-aiplatform.googleapis.com{VERTEX}",
    "bedrock": "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "xai": "https://api.x.ai/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "together": "https://api.together.xyz/v1",
    "fireworks": "https://api.fireworks.ai/inference/v1",
    "cerebras": "https://api.cerebras.ai/v1",
    "perplexity": "https://api.perplexity.ai",
    "cohere": "https://api.cohere.ai/compatibility/v1",
    "moonshot": "https://api.moonshot.ai/v1",
    "zai": "https://api.z.ai/api/paas/v4/",
    "dashscope": "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    "deepinfra": "https://api.deepinfra.com/v1/openai",
    "github": "https://models.github.ai/inference",
    "databricks": "https://w.cloud.databricks.com/serving-endpoints",
    "huggingface": "https://router.huggingface.co/v1",
    "cloudflare": "https://api.cloudflare.com/client/v4/accounts/A/ai/v1",
}
"""The `base_url` that each provider documents for OpenAI's client."""
IN_THE_PATH = {"vertex": "/v1/projects/P/locations/L", "cloudflare": "/client/v4/accounts/A"}
"""What precedes the API's root."""


@pytest.mark.parametrize("name", HOSTED)
async def test_the_documented_url_and_its_host_alone_are_called_as_by_openai_s_client(name: str) -> None:
    lines: list[str] = []
    documented = urlsplit(DOCUMENTED[name])
    host, options = documented.hostname or "", OpenAIProtocol()
    assert of_host(host, HOSTED) == name
    called = f"POST {documented.path.rstrip('/')}/chat/completions"
    async with answering({called: BODY.decode()}, lines) as url:
        async with AsyncOpenAI(base_url=url + documented.path, api_key="k", max_retries=0) as sdk:
            await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        for path in (documented.path, documented.path.rstrip("/"), IN_THE_PATH.get(name, "")):
            adapter = OpenAIAdapter(client := Client(url + path), host=host, options=options)
            await adapter.call(wire.decode_chat(CHAT), Call(Deadline(client.now() + 9, 9, 9)))
            await adapter.aclose()
    assert lines == [called] * 4


def test_hosts_of_one_provider_are_of_no_other() -> None:
    for name, dialect in HOSTED.items():
        for host in dialect.hosts:
            assert of_host(host.replace("*", "x"), HOSTED) == name
    assert of_host("api.openai.com.example.com", HOSTED) is None
    assert of_host("notapi.x.ai.example", HOSTED) is None
