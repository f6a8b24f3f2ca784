"""Builds a request from its description in a test or a query, with the codec of its front."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from adapters.requests import ModelRequest
from adapters.types import InferKind
from adapters.wire.oip import request_view as oip_view
from adapters.wire.openai import chat as wire
from config.cases import RequestConfig
from gateway.auth.keys import Principal

_IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]


_DECODE: dict[str, Callable[[bytes], ModelRequest]] = {
    "chat": wire.decode_chat,
    "text_completion": wire.decode_completion,
    "embeddings": wire.decode_embedding,
}


def request_of(description: RequestConfig) -> ModelRequest:
    """The described request. Raises `CallerError` for a body that a front would reject."""
    request = (
        _tensors(description)
        if description.front == "infer"
        else _DECODE[description.front](msgspec.json.encode(body_of(description)))
    )
    tokens = description.prompt_tokens
    return request if tokens is None else replace(request, prompt_tokens=tokens)


def headers_of(description: RequestConfig) -> dict[str, str]:
    """The headers of the described request, with lower-case names."""
    return {name.lower(): value for name, value in description.header.items()}


def principal_of(description: RequestConfig, holder: Principal | None) -> Principal:
    """The described client: the holder of the key, if there is one, with the described roles and labels."""
    if holder is None or holder.tenant != description.tenant:
        return Principal(
            description.tenant, description.key, frozenset({"user", *description.roles}), description.labels
        )
    roles, labels = holder.roles | set(description.roles), {**holder.labels, **description.labels}
    return Principal(description.tenant, description.key, roles, labels, holder.scope)


def _tensors(description: RequestConfig) -> ModelRequest:
    """A request of tensors. Its `body` has the parameters."""
    body = msgspec.json.encode({"inputs": [{"name": "x", "shape": [1, 1]}], "parameters": description.body})
    kind: InferKind = "infer_stream" if description.stream else "infer"
    return oip_view.request_of(body, model=description.model, version="", kind=kind)


def body_of(description: RequestConfig) -> dict[str, Any]:
    """The body that the client would send; for tensors, the parameters and the name of the model."""
    if description.front == "infer":
        return {"model": description.model, **description.body}
    content: object = _IMAGE if description.vision else "…"
    prompts: dict[str, dict[str, Any]] = {
        "chat": {"messages": [{"role": "user", "content": content}]},
        "text_completion": {"prompt": "…"},
        "embeddings": {"input": "…"},
    }
    body: dict[str, Any] = {"model": description.model, **prompts[description.front]}
    if description.stream:
        body["stream"] = True
    if description.user is not None:
        body["user"] = description.user
    if description.max_tokens is not None:
        body["max_tokens"] = description.max_tokens
    if description.tools:
        body["tools"] = [{"type": "function", "function": {"name": "f"}}]
    if description.json_schema:
        body["response_format"] = {"type": "json_schema"}
    return {**body, **description.body}
