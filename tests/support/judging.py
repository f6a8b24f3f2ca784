"""Models that judge texts for guards, and gateways whose guards ask them."""

import asyncio
import json
import struct
from typing import Any

from adapters.answer import Answer
from adapters.call import Call
from adapters.errors import BackendError, InferenceError
from adapters.fake import FakeAdapter, Script
from adapters.requests import (
    AppRequest,
    ClassifyingRequest,
    EmbeddingRequest,
    GenerateRequest,
    InferRequest,
    ModelRequest,
)
from adapters.tensors import Inferred, Tensor, split_bytes
from adapters.types import APP, OPENAI, Form, Usage
from adapters.wire.oip import responses as oip_responses
from tests.support.gateways import Rig, config

FORBIDDEN = "zebra"
PROMPT = "Is it about zebras?"


BY_CHAT: dict[str, Any] = {"name": "g", "kind": "model", "model": "judge", "prompt": PROMPT}
GUARDS: dict[str, tuple[dict[str, Any], str]] = {
    "chat": (BY_CHAT, "openai"),
    "condition": ({"name": "g", "kind": "model", "model": "judge", "match_if": 'text == "Yes."'}, "openai"),
    "tensor": (
        {"name": "g", "kind": "model", "model": "judge", "match_if": "score >= 0.5", "input": "text"}, "oip-http"
    ),
    "labels": ({"name": "g", "kind": "model", "model": "judge", "labels": ["BAD"]}, "openai"),
    "injection": ({"name": "g", "kind": "injection", "model": "judge", "on": ["prompt", "answer"]}, "openai"),
    "topics": (
        {"name": "g", "kind": "topics", "embed": "judge", "deny": [{"name": "a", "examples": ["a zebra", "zebras"]}]},
        "openai",
    ),
    "webhook": ({"name": "g", "kind": "webhook", "model": "judge", "secret": "s" * 32}, "http"),
}  # fmt: skip
"""A guard of each kind that calls a model, and the protocol of its pool."""


def answer(text: str) -> FakeAdapter:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return FakeAdapter(Script(chunks=(json.dumps({"id": "1", "choices": [choice]}).encode(),)))


def prompt_of(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


class Judging(FakeAdapter):
    """Finds texts with the forbidden word, in each form of a model. Fails or waits if it is told to."""

    def __init__(self, latency: float = 0.0, *, fails: bool = False) -> None:
        super().__init__(Script(latency=latency))
        self.texts: list[str] = []
        self.requests: list[ModelRequest] = []
        self.fails = fails
        self.gate: asyncio.Event | None = None

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        await super().call(request, call)
        self.requests.append(request)
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise BackendError("It is broken.")
        if isinstance(request, InferRequest):
            (text,) = split_bytes(request.inference.inputs[0].data, 1, "text")
            score = Tensor("score", "FP32", (1,), struct.pack("<f", self._finds(text.decode())))
            body, length = oip_responses.encode_response(Inferred("m", outputs=[score]), True)
            return Answer(
                content_type="application/json", body=body, usage=Usage(rows=1), form=Form("oip-http", length)
            )
        made = self._of_labels(request) if isinstance(request, AppRequest) else self._of_texts(request)
        form = APP if isinstance(request, AppRequest) else OPENAI
        usage = Usage(prompt_tokens=10, completion_tokens=1, exact=True)
        return Answer(content_type="application/json", body=json.dumps(made).encode(), usage=usage, form=form)

    def _finds(self, text: str) -> bool:
        self.texts.append(text)
        return FORBIDDEN in text.lower()

    def _of_labels(self, request: AppRequest) -> Any:
        body = json.loads(request.body)
        if not isinstance(request, ClassifyingRequest):
            return {"version": 1, "verdict": "found" if self._finds(body["text"]) else "pass"}
        matches = self._finds(body["input"][0])
        return {"data": [{"index": 0, "label": "BAD" if matches else "GOOD", "probs": [0.9, 0.1]}]}

    def _of_texts(self, request: ModelRequest) -> Any:
        assert isinstance(request, GenerateRequest)
        if isinstance(request, EmbeddingRequest):
            given = json.loads(bytes(request.fields["input"]))
            rows = [[1.0, 0.2] if self._finds(text) else [-0.5, 1.0] for text in given]
            return {"data": [{"index": at, "embedding": row} for at, row in enumerate(rows)]}
        messages = json.loads(bytes(request.fields["messages"]))
        text = "Yes." if self._finds(messages[-1]["content"]) else "no"
        return {"choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}]}


class FailingOn(Judging):
    """Fails on texts with a word."""

    def __init__(self, word: str, error: InferenceError | None = None) -> None:
        super().__init__()
        self.word = word
        self.error = error or BackendError("It is broken.")

    def _finds(self, text: str) -> bool:
        matches = super()._finds(text)
        if self.word in text:
            raise self.error
        return matches


def judged(
    model: FakeAdapter,
    judge: FakeAdapter,
    *guards: dict[str, Any],
    protocol: str = "openai",
    others: dict[str, FakeAdapter] | None = None,
    limits: dict[str, Any] | None = None,
    price: dict[str, Any] | None = None,
) -> Rig:
    """A gateway with guards of the model `chat`; the model `judge` has a pool of its own, as each of `others`."""
    fakes = {"main": model, "judge": judge, **(others or {})}
    pools = [
        {"name": name, "endpoints": ["http://127.0.0.1:9"], **({"protocol": protocol} if name == "judge" else {})}
        for name in fakes
    ]
    models: list[dict[str, Any]] = [
        {"name": name, "routes": [{"to": name, "retry": {"attempts": 1}}]} for name in fakes if name != "main"
    ]
    if price is not None:
        models[0]["price"] = price
    models.append({"name": "chat", "routes": [{"to": "main"}], "guards": [guard["name"] for guard in guards]})
    tenant = {"name": "acme", "models": ["chat"], "limits": limits or {}}
    made = config(guards=list(guards), pools=pools, models=models, tenants=[tenant])
    return Rig(made, {name: [fake] for name, fake in fakes.items()})
