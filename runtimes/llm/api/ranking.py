"""`/v1/rerank`, `/score` and `/classify` over a model with a classifier's head."""

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters import offload
from adapters.errors import BackendError, CallerError, ContextTooLong, Unsupported
from adapters.http1.message import Request, Response
from adapters.ignored_fields import IgnoredFields
from adapters.wire.internal_headers import decode as decode_standing
from adapters.wire.openai import ranking as wire
from adapters.wire.openai.ranking import RankingBody
from runtimes.llm.api.embeddings import MAX_TOKENS, pooled
from runtimes.llm.api.http_bodies import JSON, json_body, reported
from runtimes.llm.api.metrics import ServerMetrics
from runtimes.llm.api.submission import LoadedModel, RequestOrigin
from runtimes.llm.api.unknown_fields import RANKING, UnknownFields
from runtimes.llm.engine.classifier_loader import Classifier
from runtimes.llm.model.classifier import applied
from runtimes.llm.model.classifier_config import Function
from runtimes.llm.text.pairs import TextTokens
from runtimes.llm.text.tokenizer import TooManyTokens

RERANK = ("/v1/rerank", "/rerank", "/v2/rerank")
SCORE = ("/v1/score", "/score")
CLASSIFY = ("/v1/classify", "/classify")
_BARE = "/v2/rerank"
"""Cohere's second version: its results have no documents."""


class RankingRoutes:
    """The handlers. `ready` selects the model by a request's name of it."""

    def __init__(self, ready: Callable[[str | None], LoadedModel], metrics: ServerMetrics, served_name: str) -> None:
        self._ready = ready
        self._metrics = metrics
        self._served_name = served_name

    def routes(self) -> Mapping[tuple[str, str], Callable[[Request], Awaitable[Response]]]:
        return {
            **{("POST", path): self._rerank for path in RERANK},
            **{("POST", path): self._score for path in SCORE},
            **{("POST", path): self._classify for path in CLASSIFY},
        }

    async def _rerank(self, request: Request) -> Response:
        body, hints = await self._decoded(request, wire.decode_rerank)
        scores, tokens = await self._scores(request, body, cut=True)
        wished = request.path != _BARE if body.returns_documents is None else body.returns_documents
        results = wire.ranked(scores, body.top_n)
        answer = wire.encode_rerank(body, results, model=self._served_name, tokens=tokens, documents=wished)
        return reported(Response(200, [JSON], answer), hints)

    async def _score(self, request: Request) -> Response:
        body, hints = await self._decoded(request, wire.decode_score)
        scores, tokens = await self._scores(request, body, cut=False)
        answer = wire.encode_scores(scores, model=self._served_name, tokens=tokens)
        return reported(Response(200, [JSON], answer), hints)

    async def _classify(self, request: Request) -> Response:
        body, hints = await self._decoded(request, wire.decode_classify)
        model, classifier = self._classifier(body.model)
        if classifier.prompt is not None:
            message = f"The model `{self._served_name}` compares two texts: use /v1/rerank or /score."
            raise Unsupported(message, param="model")
        rows = await _rows(body, model, classifier, cut=False)
        shares = await self._computed(request, model, classifier, rows, classifier.config.classify)
        answer = wire.encode_classes(
            shares.tolist(), classifier.config.labels, model=self._served_name, tokens=_count(rows)
        )
        return reported(Response(200, [JSON], answer), hints)

    async def _decoded(
        self, request: Request, decode: Callable[[bytes], RankingBody]
    ) -> tuple[RankingBody, IgnoredFields]:
        written = await json_body(request)
        body = await offload.parse(written, decode, written)
        hints = IgnoredFields.of(request.headers)
        unknown = UnknownFields(RANKING, hints)
        for name in body.ignored:
            unknown.ignore(name)
        return body, hints

    def _classifier(self, name: str | None) -> tuple[LoadedModel, Classifier]:
        model = self._ready(name)
        if model.classifier is None:
            message = f"The model `{self._served_name}` has no classifier's head: it neither ranks nor classifies."
            raise Unsupported(message, param="model")
        return model, model.classifier

    async def _scores(self, request: Request, body: RankingBody, *, cut: bool) -> tuple[list[float], int]:
        """The relevance of each pair, and the tokens of all."""
        model, classifier = self._classifier(body.model)
        if (count := len(classifier.config.labels)) != 1:
            message = f"The model `{self._served_name}` has {count} labels, so it gives no one score: use /classify."
            raise Unsupported(message, param="model")
        if body.instruction is not None and classifier.prompt is None:
            message = "`instruction`: this model has no prompt with an instruction."
            raise CallerError(message, param="instruction", code="unsupported_parameter")
        rows = await _rows(body, model, classifier, cut=cut)
        scores = await self._computed(request, model, classifier, rows, classifier.config.score)
        return scores[:, 0].tolist(), _count(rows)

    async def _computed(
        self,
        request: Request,
        model: LoadedModel,
        classifier: Classifier,
        rows: Sequence[TextTokens],
        function: Function,
    ) -> NDArray[np.float64]:
        origin = RequestOrigin.of(decode_standing(request.headers), None, None, model.engine.clock())
        outputs = await pooled(rows, model, classifier.config.pooling, origin, self._metrics)
        vectors = np.stack([output.pooled for output in outputs if output.pooled is not None])
        logits = await model.encoding.run(vectors.size // 64, functools.partial(classifier.head.logits, vectors))
        if not np.isfinite(logits).all():
            raise BackendError("The model computed numbers that are not finite: load it with another dtype.")
        return applied(function, logits)


def _count(rows: Sequence[TextTokens]) -> int:
    return sum(len(row.token_ids) for row in rows)


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────


async def _rows(body: RankingBody, model: LoadedModel, classifier: Classifier, *, cut: bool) -> list[TextTokens]:
    """The tokens of each pair or text. With `cut` longer ones are cut to the model's limit. Raises `CallerError`."""
    context = model.engine.max_model_len
    limit = context if body.truncate in (None, -1) else body.truncate or 0
    if not 0 < limit <= context:
        message = f"`truncate_prompt_tokens` must be -1, or 1 to the {context} tokens that this model takes."
        raise CallerError(message, param="truncate_prompt_tokens")
    encode = _Rows(model, classifier, limit, body, cut=cut or body.truncate is not None)
    rows, total = list[TextTokens](), 0
    for index, (first, second) in enumerate(body.pairs):
        work = functools.partial(encode.row, first, second)
        try:
            rows.append(await model.encoding.run(len(first) + len(second or ""), work))
        except TooManyTokens:
            message = f"The text or pair {index} has more tokens than the {limit} that this model takes."
            raise ContextTooLong(message, param=None) from None
        if not rows[-1].token_ids:
            raise CallerError(f"The text {index} has no token at all.", param="input")
        total += len(rows[-1].token_ids)
        if total > MAX_TOKENS:
            raise CallerError(f"The texts have more than {MAX_TOKENS} tokens in all.")
    return rows


class _Rows:
    """Encodes the texts of one request. A query of many documents is encoded once."""

    def __init__(self, model: LoadedModel, classifier: Classifier, limit: int, body: RankingBody, *, cut: bool) -> None:
        self._tokenizer = model.tokenizer
        self._classifier = classifier
        self._limit = limit
        self._body = body
        self._cut = cut
        self._query: tuple[str, Any] | None = None

    def row(self, first: str, second: str | None) -> TextTokens:
        if second is None:
            return self._alone(first)
        first, second = self._bounded(first), self._bounded(second)
        if self._body.max_tokens_per_doc is not None:
            second = self._tokenizer.shortened(second, self._body.max_tokens_per_doc)
        if (prompt := self._classifier.prompt) is not None:
            return prompt.row(first, second, self._body.instruction, self._limit, cut=self._cut)
        if self._query is None or self._query[0] != first:
            self._query = first, self._classifier.pairs.query(first)
        return self._classifier.pairs.row(self._query[1], second, self._limit, cut=self._cut)

    def _alone(self, text: str) -> TextTokens:
        row = self._tokenizer.encode_whole(self._bounded(text), self._limit if self._cut else None)
        if len(row) > self._limit:
            raise TooManyTokens(f"more than {self._limit} tokens")
        return TextTokens(row)

    def _bounded(self, text: str) -> str:
        """A text that is too long in any case is not encoded whole."""
        most = self._limit * self._tokenizer.longest_piece
        if len(text) <= most:
            return text
        if not self._cut:
            raise TooManyTokens(f"more than {self._limit} tokens")
        return text[:most]
