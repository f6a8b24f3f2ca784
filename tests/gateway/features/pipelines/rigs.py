"""Pipelines over scripted upstreams: a gateway's core, with a fake server for each model."""

import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from adapters.base import Answer
from adapters.fake import FakeAdapter, Script
from adapters.requests import InferRequest
from adapters.tensors import Inference, Inferred, Tensor
from adapters.types import Form, Usage
from adapters.upstreams.inferred import decode
from adapters.wire import sse
from adapters.wire.oip import generate as oip_generate
from adapters.wire.oip import request_view as oip_view
from adapters.wire.oip import responses as oip_responses
from adapters.wire.oip.proto_responses import encode_infer_response, encode_stream_response
from tests.support.gateways import Rig, chat, config

EACH = {"name": "rec", "model": "a", "in": {"x": "request.x"}, "each": True}
"""A step that runs once for each row."""

TWO: dict[str, Any] = {
    "steps": [{"name": "draft", "model": "a"}, {"name": "final", "model": "b", "in": {"prompt": "draft.text"}}]
}
"""The text of one model is the prompt of another."""
made: list[Rig] = []
"""The rigs of the running test: a fixture asserts at the end that each is idle."""


def rig(
    pipeline: dict[str, Any],
    fakes: dict[str, FakeAdapter],
    tensors: Sequence[str] = (),
    limits: Any = None,
    prices: dict[str, str] | None = None,
    models: Sequence[dict[str, Any]] = (),
    **model: Any,
) -> Rig:
    """A pipeline named `whole` over a model and a pool for each fake; `tensors` names the models of tensors."""
    pools = [
        {"name": name, "endpoints": ["http://127.0.0.1:9"], **({"protocol": "oip-http"} if name in tensors else {})}
        for name in fakes
    ]
    entries: list[dict[str, Any]] = [{"name": name, "routes": [{"to": name}]} for name in fakes]
    for entry in entries:
        if prices and entry["name"] in prices:
            entry["price"] = {"request": prices[entry["name"]]}
    whole = {"name": "whole", "pipeline": pipeline, **model}
    one = Rig(
        config(
            pools=pools,
            models=[*entries, *models, whole],
            tenants=[{"name": "acme", "models": ["*"], "limits": limits or {}}],
        ),
        {name: [fake] for name, fake in fakes.items()},
    )
    made.append(one)
    return one


def chat_fake(text: str, finish: str = "stop", **script: Any) -> FakeAdapter:
    """A server of chats that always answers with one text."""
    return FakeAdapter(chat_script(text, finish, **script))


def chat_script(text: str, finish: str = "stop", **script: Any) -> Script:
    """The script of one chat."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    body = json.dumps({"object": "chat.completion", "choices": [choice], "usage": {}}).encode()
    return Script(chunks=(body,), **script)


def chunks(*texts: str) -> tuple[bytes, ...]:
    """The events of a streamed chat."""
    deltas = [{"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]} for text in texts]
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    events = [b"data: " + json.dumps(each).encode() + b"\n\n" for each in (*deltas, last)]
    return (*events, b"data: [DONE]\n\n")


def floats(name: str, *values: float) -> Tensor:
    """A tensor of FP32 with one row."""
    return Tensor(name, "FP32", (1, len(values)), struct.pack(f"<{len(values)}f", *values))


def batch(rows: int, name: str = "x") -> Tensor:
    """A tensor of FP32 with one number in each row."""
    return Tensor(name, "FP32", (rows, 1), floats("", *[1.0] * rows).data)


def infers(*outputs: Tensor, rows: int = 1, first: Script | None = None, **script: Any) -> FakeAdapter:
    """A server of tensors that always answers with these outputs, after a first script."""
    body, length = oip_responses.encode_response(Inferred("m", outputs=list(outputs)), True)
    usage = Usage(rows=rows, exact=True)
    always = Script(chunks=(body,), form=Form("oip-http", length), usage=usage, **script)
    return FakeAdapter(always) if first is None else FakeAdapter(first, always)


def infer(*inputs: Tensor, model: str = "whole", **fields: Any) -> InferRequest:
    """A client's request with tensors."""
    return oip_view.request_from(Inference(model, inputs=list(inputs), **fields), 100)


async def outputs(answer: Answer) -> dict[str, Tensor]:
    """The outputs of an answer, by name."""
    return {tensor.name: tensor for tensor in (await decode(answer)).outputs}


def sent(one: Rig, model: str, call: int = -1) -> dict[str, Any]:
    """The requests that a model received: the fields of a chat, or the tensors of an inference by name."""
    request = one.adapters[model][0].calls[call].request
    if isinstance(request, InferRequest):
        return {tensor.name: tensor for tensor in request.inference.inputs}
    return {name: json.loads(bytes(raw)) for name, raw in request.codec.fields(request).items()}


async def text(one: Rig, **fields: Any) -> str:
    """The text of the answer to a chat, or the events of its stream."""
    answer = await one.core.handle(one.principal, chat("whole", **fields), {}, one.record())
    if answer.body is None:
        return b"".join([piece async for piece in answer]).decode()
    return str(json.loads(answer.body)["choices"][0]["message"]["content"])


def streamed(made: Iterable[Inferred], form: Form) -> tuple[bytes, ...]:
    """The pieces of a stream of responses, in the form of a server."""
    if form.wire == "oip-grpc":
        return tuple(encode_stream_response(encode_infer_response(each)) for each in made)
    if form.generates:
        return tuple(sse.encode(oip_generate.encode_generate(each)) for each in made)
    return tuple(sse.encode(oip_responses.encode_response(each)[0]) for each in made)
