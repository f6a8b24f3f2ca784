"""The node `rerank`: orders candidates by a model, and selects the best."""

from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from adapters import offload
from adapters.errors import BackendError, CallerError
from adapters.requests import ModelRequest
from adapters.tensors import Inference, Tensor
from adapters.wire import decoding
from adapters.wire.openai import chat as openai
from adapters.wire.openai.embeddings import MAX_INPUTS
from config.schema.pipelines.leaves import RerankConfig
from gateway.features.pipelines.answers import values_of
from gateway.features.pipelines.model import described
from gateway.features.pipelines.scope import REQUEST, Bound, Estimate, Output, StepScope
from gateway.features.pipelines.values import UnusableValueError, Value, array_of, elements_of, tensor_of, text_of
from policies.pipelines.rerank import Ranked, RerankError, cosine, top

MAX_CANDIDATES = MAX_INPUTS // 2
_encode = msgspec.json.Encoder().encode


class _Entry(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _Body(msgspec.Struct):
    data: list[_Entry]


_body = msgspec.json.Decoder(_Body).decode


def rank_embedded(body: bytes, count: int, best: int) -> list[Ranked]:
    """The best candidates by an answer of OpenAI's embeddings: of the query, then of `count` candidates.

    Raises `BackendError`.
    """
    try:
        data = sorted(_body(body).data, key=lambda entry: entry.index)
    except decoding.MALFORMED_JSON as error:
        raise _unusable(f"it is not a response with embeddings: {error}") from None
    if len(data) != count + 1:
        raise _unusable(f"it has {len(data)} vectors for {count + 1} texts")
    if len({len(entry.embedding) for entry in data}) > 1:
        raise _unusable("its vectors differ in length")
    vectors = np.array([entry.embedding for entry in data], np.float64)
    try:
        return top(cosine(vectors[0], vectors[1:]), best)
    except RerankError as error:
        raise _unusable(str(error)) from None


def rank_scored(scores: Tensor, count: int, best: int) -> list[Ranked]:
    """The best candidates by a tensor of scores, one for each. Raises `BackendError`."""
    try:
        array: Any = array_of(scores)
    except UnusableValueError as error:
        raise _unusable(str(error)) from None
    if scores.datatype in ("BYTES", "BOOL") or array.size != count:
        shown = f"`{scores.name}` is {scores.datatype} {list(scores.shape)}"
        raise _unusable(f"{shown}, and {count} candidates need one number each")
    try:
        return top(array.reshape(-1), best)
    except RerankError as error:
        raise _unusable(str(error)) from None


def _unusable(reason: str) -> BackendError:
    return BackendError(f"The answer of the model cannot order the candidates: {reason}.", code="upstream_bad_response")


class RerankNode:
    """Sends the query and all candidates to the model in one request."""

    def __init__(self, config: RerankConfig) -> None:
        self._config = config
        self._model = config.embed or config.score or ""

    async def run(self, scope: StepScope) -> Output:
        try:
            query = text_of(await scope.value(f"{REQUEST}.query"))
            given = await scope.value(f"{REQUEST}.candidates")
            candidates = elements_of(given) if isinstance(given, Tensor) else given
            texts = _texts(candidates)
        except UnusableValueError as error:
            raise CallerError(f"The candidates cannot be ordered: {error}.") from None
        ranked = await self._ranked(query, texts, scope) if texts else []
        return Output({
            "candidates": [candidates[each.place] for each in ranked],
            "scores": [each.score for each in ranked],
            "places": [each.place for each in ranked],
        })  # fmt: skip

    async def _ranked(self, query: str, texts: list[str], scope: StepScope) -> list[Ranked]:
        assert scope.call.models is not None
        request = await self._request(query, texts, scope)
        answer = await scope.call.models.call(self._model, request, scope.call)
        if scope.call.step is not None:
            scope.call.step.endpoint = answer.endpoint
        if self._config.embed is None:
            return rank_scored(_scores(await values_of(answer), self._config.by), len(texts), self._config.top)
        if answer.body is None:
            await answer.aclose()
            raise BackendError("The upstream answered with a stream.", code="upstream_bad_response")
        body = answer.body
        return await offload.run(len(body), rank_embedded, body, len(texts), self._config.top)

    async def _request(self, query: str, texts: list[str], scope: StepScope) -> ModelRequest:
        config = self._config
        if config.embed is not None:
            fields: dict[str, Any] = {"model": config.embed, "input": [query, *texts]}
            encoded = {name: Raw(_encode(value)) for name, value in fields.items()}
            return openai.embedding_request(encoded, len(bytes(encoded["input"])))
        declared = {tensor.name: tensor for tensor in (await described(self._model, scope)).inputs}
        rows = {config.query: [query] * len(texts), config.candidate: texts}
        try:
            inputs = [tensor_of(name, value, declared.get(name)) for name, value in rows.items()]
        except UnusableValueError as error:
            raise scope.fail(error) from None
        return await scope.request.infer(self._model, Inference(self._model, inputs=inputs))

    def bound(self, estimate: Estimate) -> Bound:
        return estimate(self._model)


def _texts(candidates: Value) -> list[str]:
    """The texts of candidates, which are texts or objects with a `text`. Raises `UnusableValueError`."""
    if not isinstance(candidates, list):
        raise UnusableValueError("`candidates` is not a list")
    if len(candidates) > MAX_CANDIDATES:
        raise UnusableValueError(f"there are {len(candidates)} of them, and {MAX_CANDIDATES} at most are ordered")
    contents = (each.get("text") if isinstance(each, dict) else each for each in candidates)
    texts = [text for text in contents if isinstance(text, str) and text]
    if len(texts) != len(candidates):
        raise UnusableValueError("one is not a text, or empty")
    return texts


def _scores(values: Any, name: str | None) -> Tensor:
    tensors = [value for key, value in values.items() if isinstance(value, Tensor) and name in (None, key)]
    if len(tensors) != 1:
        shown = ", ".join(values) or "none"
        required = "one output: name it as `by`" if name is None else f"an output `{name}`"
        raise BackendError(f"The model of scores needs {required}. It has {shown}.", code="upstream_bad_response")
    return tensors[0]
