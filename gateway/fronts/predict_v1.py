"""KServe's v1 and TensorFlow Serving's front: `/v1/models/NAME:predict` and similar paths, over models of tensors.

The body is forwarded unchanged to a server of the same wire; the adapters of other servers convert it to tensors.
"""

import re
from functools import lru_cache
from typing import NamedTuple, cast, get_args
from urllib.parse import unquote

from adapters import offload
from adapters.errors import BackendError, NotFound
from adapters.http1.message import Request, Response
from adapters.offload import codecs
from adapters.types import Verb
from adapters.upstreams.inferred import decode
from adapters.wire.openai import chat as openai
from adapters.wire.tfserving import predict_v1_responses, predict_v1_view
from gateway.auth.keys import Principal
from gateway.fronts import errors, tensors
from gateway.fronts.door import Door, DoorPath
from gateway.fronts.metadata import Metadata
from gateway.fronts.states import states
from gateway.telemetry import Record

_PATH = re.compile(
    r"/v1/models/([^/].*?)(?:/(?:versions|labels)/([^/:]+))?(?::(predict|explain|classify|regress)|/(metadata))?"
)
_NOT_FOUND = "Unknown path."
LONGEST_PATH = 1024


class PredictTarget(NamedTuple):
    """A decoded path. A path without a verb requests the model's status."""

    model: str
    version: str
    verb: str


def target_of(path: bytes) -> PredictTarget | None:
    """Decode a path; None for an unknown or overlong path. The result is cached, as few paths are in use."""
    return _target_of(path) if len(path) <= LONGEST_PATH else None


@lru_cache(4096)
def _target_of(path: bytes) -> PredictTarget | None:
    match = _PATH.fullmatch(unquote(path.decode("latin-1"), errors="replace"))
    return None if match is None else PredictTarget(match[1], match[2] or "", match[3] or match[4] or "status")


class PredictFront:
    """The handler of `/v1/models/NAME` and the paths below."""

    def __init__(self, door: Door, created: int) -> None:
        self._door = door
        self._core = door.core
        self._metadata = Metadata(door.core)
        self._created = created
        self._routes = {
            **dict.fromkeys(get_args(Verb), DoorPath("/v1/models/{model}:{verb}", self._infer)),
            "explain": DoorPath("/v1/models/{model}:explain", self._infer),
            "status": DoorPath("/v1/models/{model}", self._status),
            "metadata": DoorPath("/v1/models/{model}/metadata", self._described),
        }

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return list(self._routes.values())

    async def __call__(self, http: Request) -> Response:
        """Answer one request. A model's own path belongs to OpenAI's API too, so its errors have OpenAI's form."""
        target = target_of(http.target)
        route = None if target is None else self._routes[target.verb]
        refusal = errors.openai_response if target is None or target.verb == "status" else errors.oip_response
        return await self._door.serve(http, route, _NOT_FOUND, refusal)

    # ── inference ─────────────────────────────────────────────────────────────────────────────────────

    async def _infer(self, principal: Principal, http: Request, record: Record) -> Response:
        target = target_of(http.target)
        assert target is not None
        body = await http.read()
        look = await offload.run(len(body), predict_v1_view.summarize, body)
        model, version, explainer = self._served_by(principal, target)
        verb, by_row = cast(Verb, target.verb), look[1]
        request = predict_v1_view.request_of(
            body, model=model, version=version, verb=verb, explainer=explainer, look=look
        )
        answer = await self._core.handle(principal, request, http.headers, record)
        headers = [("content-type", "application/json"), *self._door.headers(record), *answer.headers]
        if answer.body is None:
            await answer.aclose()
            raise BackendError("The upstream answered with a stream.", code="upstream_bad_response")
        if answer.form.wire == "predict-v1":
            return Response(answer.status, headers, answer.body)
        body = await codecs.encode_predict_v1(await decode(answer), verb, by_row=by_row)
        return Response(200, headers, body)

    def _served_by(self, principal: Principal, target: PredictTarget) -> tuple[str, str, bool]:
        """The model and the version that answer, and whether the model is an explainer.

        An explanation is routed to the model's explainer if the configuration names one, else to the model itself. The
        explainer is a model too, and the client must be allowed to use it.
        """
        snapshot = self._core.snapshot
        if target.verb == "explain":
            resolved = self._door.model_of(principal, target.model)
            explainer = snapshot.explainers.get(resolved.rules.model)
            if explainer is not None:
                return explainer, "", True
        return *tensors.named(snapshot, target.model, target.version), False

    # ── metadata and status ───────────────────────────────────────────────────────────────────────────

    async def _described(self, principal: Principal, http: Request, record: Record) -> Response:
        target = target_of(http.target)
        assert target is not None
        model, version = tensors.named(self._core.snapshot, target.model, target.version)
        metadata = await self._metadata.of(principal, model, version, http.headers)
        newest = version or max(metadata.versions, key=predict_v1_responses.number, default="")
        return self._door.respond(record, predict_v1_responses.encode_metadata(target.model, newest, metadata))

    async def _status(self, principal: Principal, http: Request, record: Record) -> Response:
        """The status of a model of tensors, in the fields of all three protocols of this path; of another model,
        OpenAI's."""
        target = target_of(http.target)
        assert target is not None
        name, snapshot = target.model, self._core.snapshot
        is_tensor = self._door.model_of(principal, name).rules.model in snapshot.tensor_models
        fields: dict[str, object] = {**openai.model(name, self._created, "tensor" if is_tensor else "llm")}
        if not is_tensor:
            if target.version:
                raise NotFound(f"The model `{name[:128]}` has no versions of its own.", param="model").because(
                    "version_unknown"
                )
            return self._door.respond(record, predict_v1_responses.encode(fields))
        model, version = tensors.named(snapshot, name, target.version)
        standing, versions = await states(self._core, self._metadata, principal, http.headers, record, model, version)
        fields |= {"name": name, "ready": standing.ready}
        if standing.reason:
            fields["reason"] = standing.reason
        body = predict_v1_responses.encode_status(
            versions or ([""] if standing.reported else []), standing.state, standing.reason, fields
        )
        return self._door.respond(record, body)
