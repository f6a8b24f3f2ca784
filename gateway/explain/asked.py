"""Builds a request from its description in a test or a query, with the codec of its front."""

from collections.abc import Callable
from typing import Any

import msgspec

from adapters.requests import ModelRequest
from adapters.types import InferKind
from adapters.wire.oip import request_view as oip_view
from adapters.wire.openai import chat as wire
from config.cases import AskedConfig
from gateway.auth.keys import Principal

_IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]


_DECODE: dict[str, Callable[[bytes], ModelRequest]] = {
    "chat": wire.decode_chat,
    "text_completion": wire.decode_completion,
    "embeddings": wire.decode_embedding,
}


def request_of(asked: AskedConfig) -> ModelRequest:
    """The described request. Raises `CallerError` for a body that a front would reject."""
    request = _tensors(asked) if asked.front == "infer" else _DECODE[asked.front](msgspec.json.encode(body_of(asked)))
    if asked.prompt_tokens is not None:
        request.prompt_tokens = asked.prompt_tokens
    return request


def headers_of(case: AskedConfig) -> dict[str, str]:
    """The headers of the described request, with lower-case names."""
    return {name.lower(): value for name, value in case.header.items()}


def principal_of(asked: AskedConfig, holder: Principal | None) -> Principal:
    """The described client: the holder of the key, if there is one, with the described roles and labels."""
    if holder is None or holder.tenant != asked.tenant:
        return Principal(asked.tenant, asked.key, frozenset({"user", *asked.roles}), asked.labels)
    roles, labels = holder.roles | set(asked.roles), {**holder.labels, **asked.labels}
    return Principal(asked.tenant, asked.key, roles, labels, holder.scope)


def _tensors(asked: AskedConfig) -> ModelRequest:
    """A request of tensors. Its `body` has the parameters."""
    body = msgspec.json.encode({"inputs": [{"name": "x", "shape": [1, 1]}], "parameters": asked.body})
    kind: InferKind = "infer_stream" if asked.stream else "infer"
    return oip_view.request_of(body, model=asked.model, version="", kind=kind)


def body_of(asked: AskedConfig) -> dict[str, Any]:
    """The body that the client would send; for tensors, the parameters and the name of the model."""
    if asked.front == "infer":
        return {"model": asked.model, **asked.body}
    content: object = _IMAGE if asked.vision else "…"
    prompts: dict[str, dict[str, Any]] = {
        "chat": {"messages": [{"role": "user", "content": content}]},
        "text_completion": {"prompt": "…"},
        "embeddings": {"input": "…"},
    }
    body: dict[str, Any] = {"model": asked.model, **prompts[asked.front]}
    if asked.stream:
        body["stream"] = True
    if asked.user is not None:
        body["user"] = asked.user
    if asked.max_tokens is not None:
        body["max_tokens"] = asked.max_tokens
    if asked.tools:
        body["tools"] = [{"type": "function", "function": {"name": "f"}}]
    if asked.json_schema:
        body["response_format"] = {"type": "json_schema"}
    return {**body, **asked.body}
