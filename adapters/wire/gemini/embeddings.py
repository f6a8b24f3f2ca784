"""Embeddings at the Gemini API and at Vertex AI, for requests in OpenAI's form."""

from collections.abc import Sequence
from struct import pack
from typing import Any

import msgspec

from adapters.errors import CallerError
from adapters.requests import Fields
from adapters.wire.body import field
from adapters.wire.openai import embeddings
from adapters.wire.openai.embeddings import EmbeddingFields, Vector
from adapters.wire.reported_usage import count_of

Object = dict[str, Any]

MOST = 100
"""Texts of one call to the Gemini API."""
MOST_AT_VERTEX = 250
_SINGLE = ("gemini-embedding",)
"""Models of Vertex AI that take one text in a call."""
_CONTENT = ("gemini-embedding-2",)
"""Models of Vertex AI that have the Gemini API's own call."""
_TASKS = {
    "search_document": "RETRIEVAL_DOCUMENT",
    "document": "RETRIEVAL_DOCUMENT",
    "passage": "RETRIEVAL_DOCUMENT",
    "search_query": "RETRIEVAL_QUERY",
    "query": "RETRIEVAL_QUERY",
    "classification": "CLASSIFICATION",
    "clustering": "CLUSTERING",
}

_encode = msgspec.json.Encoder().encode
_string = msgspec.json.Decoder(str | None)


class _Values(msgspec.Struct):
    values: list[float]


class _Batch(msgspec.Struct):
    embeddings: list[_Values]


class _One(msgspec.Struct):
    embedding: _Values


class _Statistics(msgspec.Struct, frozen=True):
    token_count: float = 0


class _Predicted(msgspec.Struct):
    values: list[float]
    statistics: _Statistics = _Statistics()


class _Prediction(msgspec.Struct):
    embeddings: _Predicted


class _Predictions(msgspec.Struct):
    predictions: list[_Prediction]


_batch = msgspec.json.Decoder(_Batch).decode
_one = msgspec.json.Decoder(_One).decode
_predictions = msgspec.json.Decoder(_Predictions).decode


class EmbeddingCalls:
    """The calls of one request. `verb` is that of each, and `tokens` counts those that the answers report."""

    def __init__(self, fields: Fields, model: str, resource: str, *, of_vertex: bool) -> None:
        """`resource` is the name of the model with its collection. Raises `CallerError`."""
        self.fields: EmbeddingFields = embeddings.decode(fields)
        if not all(isinstance(text, str) for text in self.fields.inputs):
            raise CallerError("`input` has tokens, and this model takes texts only.", param="input")
        task = field(fields, "input_type", _string)
        self._task = None if task is None else _TASKS.get(task.lower(), task.upper())
        self._resource = resource
        self._predicts = of_vertex and not model.startswith(_CONTENT)
        is_single = of_vertex and model.startswith(_SINGLE)
        self._most = 1 if is_single else MOST_AT_VERTEX if self._predicts else MOST
        self.verb = "predict" if self._predicts else "embedContent" if is_single else "batchEmbedContents"
        self.tokens = 0

    def bodies(self) -> list[bytes]:
        """The body of each call."""
        texts = [str(text) for text in self.fields.inputs]
        groups = [texts[at : at + self._most] for at in range(0, len(texts), self._most)]
        return [_encode(self._predict(group) if self._predicts else self._contents(group)) for group in groups]

    def _predict(self, texts: Sequence[str]) -> Object:
        task = {"task_type": self._task} if self._task else {}
        size = self.fields.dimensions
        parameters = {} if size is None else {"parameters": {"outputDimensionality": size}}
        return {"instances": [{"content": text, **task} for text in texts], **parameters}

    def _contents(self, texts: Sequence[str]) -> Object:
        about: Object = {"taskType": self._task} if self._task else {}
        if self.fields.dimensions is not None:
            about["outputDimensionality"] = self.fields.dimensions
        contents = [{"content": {"parts": [{"text": text}]}, **about} for text in texts]
        if self.verb == "embedContent":
            return contents[0]
        return {"requests": [{"model": self._resource, **content} for content in contents]}

    def vectors(self, body: bytes) -> list[Vector]:
        """The vectors of one answer. Raises msgspec's errors, and `OverflowError` for numbers that fit in no vector."""
        if not self._predicts:
            values = [_one(body).embedding] if self.verb == "embedContent" else _batch(body).embeddings
            return [_vector(each.values) for each in values]
        predictions = _predictions(body).predictions
        self.tokens += sum(count_of(each.embeddings.statistics.token_count) or 0 for each in predictions)
        return [_vector(each.embeddings.values) for each in predictions]


def _vector(values: list[float]) -> Vector:
    return Vector(pack(f"<{len(values)}f", *values), values)
