"""Pipelines whose answers or requests a guard examines, and the bodies of their requests."""

import struct
from typing import Any

from adapters.answer import Answer
from adapters.call import Call
from adapters.fake import FakeAdapter, Script
from adapters.requests import InferRequest, ModelRequest
from adapters.tensors import Inferred, Tensor, split_bytes
from adapters.types import Form, Usage
from adapters.wire.oip import responses as oip_responses
from tests.gateway.features.pipelines.rigs import rig
from tests.support.gateways import Rig

FORBIDDEN = "SECRET"


class Classifier(FakeAdapter):
    """A server of tensors that scores texts with a forbidden word as 1."""

    def __init__(self, latency: float = 0.0) -> None:
        super().__init__(Script(latency=latency))
        self.texts: list[str] = []

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        assert isinstance(request, InferRequest)
        await super().call(request, call)
        (text,) = split_bytes(request.inference.inputs[0].data, 1, "text")
        self.texts.append(text.decode())
        score = Tensor("score", "FP32", (1,), struct.pack("<f", FORBIDDEN in text.decode()))
        body, length = oip_responses.encode_response(Inferred("m", outputs=[score]), True)
        return Answer(content_type="application/json", body=body, usage=Usage(rows=1), form=Form("oip-http", length))


def guarded(model: FakeAdapter, guard: FakeAdapter | None = None, on: str = "answer", **more: Any) -> Rig:
    step = {"name": "guard", "guard": {"model": "toxicity", "block_if": "score >= 0.8", "on": on, "input": "text"}}
    sizes = {name: more.pop(name) for name in ("window", "overlap") if name in more}
    step["guard"] |= sizes  # type: ignore[operator]
    step |= more
    draft = {"name": "draft", "model": "a"}
    steps = [step, draft] if on == "request" else [draft, step]
    return rig({"steps": steps}, {"a": model, "toxicity": guard or Classifier()}, tensors=["toxicity"])


CHAT = {"messages": [{"role": "user", "content": "hi"}]}


BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": {**CHAT, "max_tokens": 99},
    "/v1/responses": {"input": "hi", "store": False},
}
