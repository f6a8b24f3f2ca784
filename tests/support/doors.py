"""A gateway's data listener on a real socket: scripted upstreams behind it, a plain client and the official ones before
it."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import Any

import aiohttp
import anthropic
import openai

from adapters.base import Adapter, Answer
from adapters.call import Call
from adapters.fake import FakeAdapter
from adapters.requests import ModelRequest
from tests.support.gateways import Rig, config, listening

CHATS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
HI: Any = [{"role": "user", "content": "hi"}]
FOREIGN = {
    CHATS: {"stop_sequences", "output_config", "tool_use", "input_schema"},
    RESPONSES: {"max_completion_tokens", "reasoning_effort", "response_format", "tool_call_id", "tool_calls"},
    MESSAGES: {
        "image_url", "max_completion_tokens", "reasoning_effort", "response_format", "tool_call_id", "tool_calls",
        "parallel_tool_calls", "file_data",
    },
}  # fmt: skip
"""Words of other doors that no error of a door may have."""

TENSOR = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}
REQUESTS = {
    CHATS: {"model": "chat", "messages": HI},
    MESSAGES: {"model": "chat", "messages": HI, "max_tokens": 5},
    RESPONSES: {"model": "chat", "input": "hi"},
    "/v1/completions": {"model": "chat", "prompt": "hi"},
    "/v1/embeddings": {"model": "chat", "input": "hi"},
    "/v1/models": None,
    "/v1/feedback": {"request_id": "r1", "metric": "liked", "value": 1},
    "/v1/batches": None,
    "/v2/models/chat/infer": {"inputs": [TENSOR]},
    "/v1/models/chat:predict": {"instances": [1.0]},
    "/apps/chat/predict": {"any": 1},
    "/v1/rerank": {"model": "chat", "query": "a", "documents": ["b"]},
    "/nowhere": None,
}
"""A request at each path; None for one without a body."""


def uncertified() -> Any:
    """For an official client: it reads no certificates, which takes most of a test's time."""
    return openai.DefaultAsyncHttpxClient(verify=False)


class Before(FakeAdapter):
    """A fake's place in the rig, with a real adapter behind it; its connections are checked where they are made."""

    def __init__(self, inner: Adapter) -> None:
        super().__init__()
        self._inner = inner

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return await self._inner.call(request, call)


class Door:
    """A listening gateway, and clients that hold the key of its tenant."""

    def __init__(self, rig: Rig, url: str, stack: AsyncExitStack, http: aiohttp.ClientSession) -> None:
        self.rig, self.url, self.http = rig, url, http
        self.keyed = {"authorization": f"Bearer {rig.key.plaintext}"}
        self._stack = stack

    @property
    def fake(self) -> FakeAdapter:
        """The first endpoint."""
        return self.rig.adapters["main"][0]

    @cached_property
    def openai(self) -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key=self.rig.key.plaintext, max_retries=0, http_client=uncertified()
        )
        self._stack.push_async_callback(client.close)
        return client

    @cached_property
    def anthropic(self) -> anthropic.AsyncAnthropic:
        client = anthropic.AsyncAnthropic(
            base_url=self.url, api_key=self.rig.key.plaintext, max_retries=0, http_client=uncertified()
        )
        self._stack.push_async_callback(client.close)
        return client

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> aiohttp.ClientResponse:
        """The whole response. A body that is neither bytes nor a form is written as JSON."""
        sent = dict(self.keyed)
        if body is not None and not isinstance(body, aiohttp.FormData):
            sent["content-type"] = "application/json"
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        response = await self.http.request(method, self.url + path, data=body, headers=sent)
        await response.read()
        return response


@asynccontextmanager
async def door_of(rig: Rig, **limits: int) -> AsyncIterator[Door]:
    """The door of a rig. `limits` are those of `listening`."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(listening(rig, **limits))
        yield Door(rig, url, stack, await stack.enter_async_context(aiohttp.ClientSession()))


@asynccontextmanager
async def door(*fakes: FakeAdapter, tenant: dict[str, Any] | None = None, **changes: Any) -> AsyncIterator[Door]:
    """Pool `main` of these endpoints; `tenant` has fields of the only tenant, `changes` are sections of the file."""
    tenants = [{"name": "acme", "models": ["*"], **(tenant or {})}]
    async with door_of(Rig(config(**{"tenants": tenants, **changes}), {"main": list(fakes)})) as made:
        yield made
