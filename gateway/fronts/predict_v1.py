"""KServe's v1 and TensorFlow Serving's door: `/v1/models/NAME:predict` and its like, over models of tensors."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    LimitExceeded,
    NotFound,
    TransportError,
    Unsupported,
)
from adapters.http1.message import Request, Response
from adapters.inferred import inferred
from adapters.tensors import CLASSES, NO_PARAMETERS, Inference, Inferred, RequestedOutput
from adapters.types import ModelQuery
from adapters.wire import oip_asked, openai, predict_v1, predict_v1_answers
from adapters.wire.oip_bodies import ModelMetadata
from gateway.auth.keys import Principal
from gateway.fronts import errors, tensors
from gateway.fronts.door import Door, Route
from gateway.fronts.metadata import Metadata
from gateway.telemetry import Record

_PATH = re.compile(
    r"/v1/models/([^/]+?)(?:/(?:versions|labels)/([^/:]+))?(?::(predict|explain|classify|regress)|/(metadata))?"
)
_NOT_FOUND = "Unknown path."
LONGEST_PATH = 1024
_MOST_CLASSES = 1000
DOUBT_SECONDS = 1.0
"""What was remembered for less is not doubted because a request does not fit it."""

Decode = Callable[[bytes, ModelMetadata], predict_v1.Asked]


class Target(NamedTuple):
    """What a path means; without a verb it asks for the model's status."""

    model: str
    version: str
    verb: str


def target_of(path: bytes) -> Target | None:
    """None for a path of nobody. Those in use are few, and remembered; a long one is none."""
    return _target_of(path) if len(path) <= LONGEST_PATH else None


@lru_cache(4096)
def _target_of(path: bytes) -> Target | None:
    match = _PATH.fullmatch(unquote(path.decode("latin-1"), errors="replace"))
    return None if match is None else Target(match[1], match[2] or "", match[3] or match[4] or "status")


class PredictFront:
    """The handler of `/v1/models/NAME`, with whatever follows."""

    def __init__(self, door: Door, metadata: Metadata, created: int) -> None:
        self._door = door
        self._core = door.core
        self._metadata = metadata
        self._created = created
        self._routes = {
            "predict": Route(("POST",), "infer", self._predict),
            "explain": Route(("POST",), "infer", self._explain),
            "classify": Route(("POST",), "infer", self._classify),
            "regress": Route(("POST",), "infer", self._regress),
            "status": Route(("GET",), "models", self._status),
            "metadata": Route(("GET",), "models", self._described),
        }

    def routes(self) -> list[Route]:
        """All there are."""
        return list(self._routes.values())

    async def __call__(self, http: Request) -> Response:
        """Answer one request. A model's own path is OpenAI's too, and refused in its form."""
        target = target_of(http.target)
        route = None if target is None else self._routes[target.verb]
        refusal = errors.openai_response if target is None or target.verb == "status" else errors.oip_response
        return await self._door.serve(http, route, _NOT_FOUND, refusal)

    # ── inference ─────────────────────────────────────────────────────────────────────────────────────

    async def _predict(self, principal: Principal, http: Request, record: Record) -> Response:
        asked, response = await self._infer(principal, http, record, predict_v1.decode_predict)
        return self._told(record, predict_v1_answers.encode_predict(response, by_row=asked.by_row))

    async def _explain(self, principal: Principal, http: Request, record: Record) -> Response:
        """By the model's explainer, which is a model as well, and may be this client's or not."""
        target = target_of(http.target)
        assert target is not None
        known = self._door.known(principal, target.model)
        explainer = self._core.snapshot.explainers.get(known.rules.model)
        if explainer is None:
            raise Unsupported(f"The model `{target.model[:128]}` has no explainer.")
        asked, response = await self._infer(
            principal, http, record, predict_v1.decode_predict, target._replace(model=explainer, version="")
        )
        return self._told(record, predict_v1_answers.encode_predict(response, by_row=asked.by_row, key="explanations"))

    async def _classify(self, principal: Principal, http: Request, record: Record) -> Response:
        _, response = await self._infer(principal, http, record, predict_v1.decode_examples, classes=True)
        return self._told(record, predict_v1_answers.encode_classes(response))

    async def _regress(self, principal: Principal, http: Request, record: Record) -> Response:
        _, response = await self._infer(principal, http, record, predict_v1.decode_examples)
        return self._told(record, predict_v1_answers.encode_values(response))

    def _told(self, record: Record, body: bytes) -> Response:
        return Response(200, [("content-type", "application/json"), *self._door.headers(record)], body)

    async def _infer(
        self,
        principal: Principal,
        http: Request,
        record: Record,
        decode: Decode,
        target: Target | None = None,
        *,
        classes: bool = False,
    ) -> tuple[predict_v1.Asked, Inferred]:
        """What was asked, and the tensors that are the answer."""
        target = target or target_of(http.target)
        assert target is not None
        body = await http.read()
        model, version = tensors.named(self._core.snapshot, target.model, target.version)
        known = await self._metadata.of(principal, model, version, http.headers)
        try:
            asked = decode(body, known)
        except CallerError:
            # Perhaps it is another model by now than the one that is remembered.
            fresh = await self._metadata.of(principal, model, version, http.headers, max_age=DOUBT_SECONDS)
            if fresh is known:
                raise
            known, asked = fresh, decode(body, fresh)
        inference = Inference(model, version, "", asked.parameters or NO_PARAMETERS, asked.inputs)
        if classes:
            inference.outputs = _scores(known)
        request = oip_asked.request_from(inference, len(body))
        answer = await tensors.inferred(self._core, principal, request, http.headers, record)
        if answer.body is None:
            await answer.aclose()
            raise BackendError("The upstream answered with a stream.", code="upstream_bad_response")
        return asked, inferred(answer)

    # ── what is told of a model ───────────────────────────────────────────────────────────────────────

    async def _described(self, principal: Principal, http: Request, record: Record) -> Response:
        target = target_of(http.target)
        assert target is not None
        model, version = tensors.named(self._core.snapshot, target.model, target.version)
        known = await self._metadata.of(principal, model, version, http.headers)
        newest = version or max(known.versions, key=_number, default="")
        return self._door.told(record, predict_v1_answers.encode_metadata(target.model, newest, known))

    async def _status(self, principal: Principal, http: Request, record: Record) -> Response:
        """Of a model of tensors what all three protocols tell under this path; of any other OpenAI's."""
        target = target_of(http.target)
        assert target is not None
        name, snapshot = target.model, self._core.snapshot
        is_tensor = self._door.known(principal, name).rules.model in snapshot.tensor_models
        told: dict[str, object] = {**openai.model(name, self._created, "tensor" if is_tensor else "llm")}
        if not is_tensor:
            if target.version:
                raise NotFound(f"The model `{name[:128]}` has no versions of its own.", param="model")
            return self._door.told(record, predict_v1_answers.encode(told))
        model, version = tensors.named(snapshot, name, target.version)
        ready = await self._is_ready(principal, http, record, model, version)
        versions = [version] if version else await self._versions(principal, http, model)
        told |= {"name": name, "ready": ready}
        return self._door.told(record, predict_v1_answers.encode_status([(each, ready) for each in versions], told))

    async def _is_ready(self, principal: Principal, http: Request, record: Record, model: str, version: str) -> bool:
        query = ModelQuery(model=model, version=version, about="ready")
        try:
            await tensors.asked(self._core, principal, query, http.headers, record)
        except LimitExceeded:
            raise
        except (CapacityError, TransportError):
            return False
        return True

    async def _versions(self, principal: Principal, http: Request, model: str) -> list[str]:
        try:
            known = await self._metadata.of(principal, model, "", http.headers)
        except (BackendError, CapacityError, TransportError):
            return []
        return known.versions


def _scores(known: ModelMetadata) -> list[RequestedOutput]:
    """An only output that holds a score for each class, with the classes' names; else all outputs as they are."""
    if len(known.outputs) != 1:
        return []
    (output,) = known.outputs
    count = output.shape[-1] if output.shape else -1
    return [RequestedOutput(output.name, {CLASSES: count if count > 0 else _MOST_CLASSES})]


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0
