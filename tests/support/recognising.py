"""A recogniser with the contract of Presidio's analyzer, and gateways whose guard asks it."""

import asyncio
import json
import re
from itertools import chain
from typing import Any

from adapters.answer import Answer
from adapters.call import Call
from adapters.errors import BackendError
from adapters.fake import FakeAdapter, Script
from adapters.requests import AppRequest, ChatRequest, ModelRequest
from adapters.types import APP, Usage
from tests.support.gateways import Rig, config

NAMES = {"Anna Schmidt": "PERSON", "Anna": "PERSON", "Zoë": "PERSON", "Görlitz": "LOCATION", "李明": "PERSON"}
RECOGNISER: dict[str, Any] = {"name": "people", "kind": "personal", "recogniser": {"model": "names"}}


class Recognising(FakeAdapter):
    """Finds the names of `NAMES`, as Presidio does: by code points, with a score. Fails or waits as a test decides."""

    def __init__(self, names: dict[str, str] | None = None) -> None:
        super().__init__()
        self.names = NAMES if names is None else names
        self.bodies: list[dict[str, Any]] = []
        self.answer: bytes | None = None
        """What it answers to every request instead."""
        self.status = 200
        self.fails = False
        self.gate: asyncio.Event | None = None

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        assert isinstance(request, AppRequest)
        assert request.path == "/analyze"
        body = json.loads(request.body)
        self.bodies.append(body)
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise BackendError("It is broken.")
        answer = self.answer or json.dumps(list(self._entities(body))).encode()
        return Answer(content_type="application/json", body=answer, usage=Usage(), status=self.status, form=APP)

    def _entities(self, body: dict[str, Any]) -> Any:
        for name, kind in self.names.items():
            for match in re.finditer(re.escape(name), body["text"]):
                entity = {"start": match.start(), "end": match.end(), "entity_type": kind, "score": 0.85}
                yield {**entity, "analysis_explanation": None}

    @property
    def texts(self) -> list[str]:
        """The texts that it has received."""
        return [body["text"] for body in self.bodies]


class Echo(FakeAdapter):
    """A model that answers with its last message."""

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        assert isinstance(request, ChatRequest)
        text = json.loads(bytes(request.fields["messages"]))[-1]["content"]
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        self._scripts = chain([Script(chunks=(json.dumps({"id": "1", "choices": [choice]}).encode(),))])
        return await super().call(request, call)

    @property
    def received(self) -> list[str]:
        """The bodies that it has received."""
        made = [each.request for each in self.calls]
        return [b"".join(bytes(raw) for raw in request.fields.values()).decode() for request in made]  # type: ignore[attr-defined]


def recognising(recogniser: FakeAdapter, model: FakeAdapter, guard: dict[str, Any] | None = None, **more: Any) -> Rig:
    """A gateway before a model, with a guard of personal data that asks the recogniser."""
    endpoints = {"endpoints": ["http://127.0.0.1:9"]}
    guards = [guard or RECOGNISER, *more.pop("guards", ())]
    configuration = config(
        guards=guards,
        pools=[{"name": "main", **endpoints}, {"name": "names", "protocol": "http", **endpoints}],
        models=[
            {"name": "chat", "guards": [each["name"] for each in guards], "routes": [{"to": "main"}]},
            {"name": "names", "routes": [{"to": "names"}]},
        ],
        **more,
    )
    return Rig(configuration, {"main": [model], "names": [recogniser]})
