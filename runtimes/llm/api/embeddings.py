"""`/v1/embeddings`: one vector for each text or list of tokens, in their order."""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from adapters import offload
from adapters.errors import BackendError, CallerError, ContextTooLong, InferenceError
from adapters.wire.openai import embeddings as wire
from adapters.wire.openai.embeddings import Vector
from runtimes.llm.api.generation import EmbeddingPhases
from runtimes.llm.api.metrics import ServerMetrics
from runtimes.llm.api.submission import LoadedModel, RequestOrigin
from runtimes.llm.api.text_bodies import EmbeddingsBody
from runtimes.llm.engine.async_engine import QueueFull, TokenOutput
from runtimes.llm.model.embedding_config import EmbeddingConfig
from runtimes.llm.sequence import Pooling, StepAdapter
from runtimes.llm.text.pairs import TextTokens

MAX_TOKENS = 300_000
"""Tokens of all texts of one request, as at OpenAI."""
AT_ONCE = 32
"""Texts of one request in the engine at once: other requests run between them."""
AT_A_TIME = 16 * 1024
"""Characters that are encoded before the loop runs other tasks."""
_SMALLEST = 1e-12
_PER_CHARACTER = 4096
"""Products of a dense layer that take as long as the encoding of a character."""


R = TypeVar("R")


def check_dimensions(body: EmbeddingsBody, config: EmbeddingConfig) -> None:
    """Raises `CallerError` for vectors without a meaning."""
    if body.dimensions is None or config.may_cut_to(body.dimensions):
        return
    allowed = f"to {', '.join(map(str, sorted(config.dimensions)))} only" if config.dimensions else "not at all"
    message = f"`dimensions`: this model's vectors may be cut {allowed}: it was not trained for {body.dimensions}."
    raise CallerError(message, param="dimensions")


async def rows_of(body: EmbeddingsBody, model: LoadedModel) -> list[list[int]]:
    """The tokens of each text, at most the model's limit. Raises `CallerError`."""
    longest = model.engine.max_model_len
    cut = longest if body.truncate == -1 else body.truncate
    if cut is not None and not 0 < cut <= longest:
        message = f"`truncate_prompt_tokens` must be -1, or 1 to the {longest} tokens that this model takes."
        raise CallerError(message, param="truncate_prompt_tokens")
    inputs: list[str | list[int]] = [*body.inputs]
    rows, total, characters = list[list[int]](), 0, 0
    for index, given in enumerate(inputs):
        rows.append(await _row(given, model, cut))
        _check(rows[-1], longest, index)
        total += len(rows[-1])
        if total > MAX_TOKENS:
            raise CallerError(f"`input` has more than {MAX_TOKENS} tokens in all.", param="input")
        characters += len(given)
        if characters > AT_A_TIME:
            characters = 0
            await asyncio.sleep(0)
    return rows


async def _row(given: str | list[int], model: LoadedModel, cut: int | None) -> list[int]:
    if isinstance(given, list):
        return given if cut is None else given[:cut]
    tokenizer, longest = model.tokenizer, model.engine.max_model_len
    text = model.embedding.prompt + given
    if len(text) > longest * tokenizer.longest_piece:
        if cut is None:  # the text is too long in any case
            raise ContextTooLong(f"`input` has a text of more than this model's {longest} tokens.", param="input")
        text = text[: longest * tokenizer.longest_piece]
    text = text.lower() if model.embedding.lowercase else text
    return await model.encoding.run(len(text), lambda: tokenizer.encode_whole(text, cut))


def _check(row: list[int], longest: int, index: int) -> None:
    if not row:
        raise CallerError(f"`input[{index}]` has no token at all.", param="input")
    if len(row) > longest:
        message = f"`input[{index}]` has {len(row)} tokens; the longest text that this model takes has {longest}."
        raise ContextTooLong(message, param="input")


async def pooled(
    texts: Sequence[TextTokens],
    model: LoadedModel,
    pooling: Pooling,
    origin: RequestOrigin,
    metrics: ServerMetrics,
    adapter: StepAdapter | None = None,
) -> list[TokenOutput]:
    """The vector of each text, counted and traced as one request. Raises `InferenceError`."""
    ended: Literal["stop", "abort", "error"] = "abort"
    began, phases = time.perf_counter(), EmbeddingPhases()

    def embeds(text: TextTokens) -> Awaitable[TokenOutput]:
        return model.engine.embed(
            text.token_ids,
            pooling,
            origin.salt,
            standing=origin.standing,
            times=phases.begin(),
            second_part=text.second_part,
            adapter=adapter,
        )

    try:
        outputs = await embedded(texts, embeds)
        ended = "stop"
    except InferenceError:
        ended = "error"
        raise
    finally:
        metrics.finished(ended, time.perf_counter() - began)
        phases.record(sum(len(text.token_ids) for text in texts))
    return outputs


async def embedded(rows: Sequence[R], embeds: Callable[[R], Awaitable[TokenOutput]]) -> list[TokenOutput]:
    """The engine's output for each text. The first failure cancels all. `embeds` raises `InferenceError`, or ValueError
    for tokens outside the vocabulary."""
    work = _Work(rows, embeds)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, len(rows))):
                group.create_task(work.some())
    except BaseExceptionGroup as failures:
        error = failures.exceptions[0]
        if isinstance(error, ValueError) and not isinstance(error, InferenceError):
            raise CallerError(f"`input` is not valid: {error}.", param="input") from None
        raise error from None
    return [work.outputs[place] for place in range(len(rows))]


class _Work(Generic[R]):
    """The texts of a request, and its workers. A worker that gets QueueFull leaves its text to the other workers.

    Without other workers the queue is full of other requests, and the error is raised.
    """

    def __init__(self, rows: Sequence[R], embeds: Callable[[R], Awaitable[TokenOutput]]) -> None:
        self.outputs: dict[int, TokenOutput] = {}
        self._left: Iterator[tuple[int, R]] = iter(enumerate(rows))
        self._back: list[tuple[int, R]] = []
        self._under_way = 0
        self._embeds = embeds

    async def some(self) -> None:
        while (job := self._back.pop() if self._back else next(self._left, None)) is not None:
            self._under_way += 1
            try:
                self.outputs[job[0]] = await self._embeds(job[1])
            except QueueFull:
                if self._under_way == 1:
                    raise
                self._back.append(job)
                return
            finally:
                self._under_way -= 1


async def body_of(
    body: EmbeddingsBody, outputs: Sequence[TokenOutput], loaded: LoadedModel, model: str, tokens: int
) -> bytes:
    """The response. Raises `BackendError` for vectors that are not finite."""
    vectors = np.stack([output.pooled for output in outputs if output.pooled is not None])
    if (dense := loaded.dense) is not None:
        work = len(vectors) * dense.products // _PER_CHARACTER
        vectors = await loaded.encoding.run(work, functools.partial(dense.applied, vectors))
    exact = finished(vectors, loaded.embedding, body.dimensions)
    made = [Vector(vector.tobytes(), []) for vector in exact]
    return await offload.run(exact.nbytes, wire.encode, made, model=model, tokens=tokens, in_base64=body.base64)


def finished(vectors: NDArray[np.float32], config: EmbeddingConfig, dimensions: int | None) -> NDArray[np.float32]:
    """Truncated vectors, normalized if the model's are, or if they were truncated: [texts, hidden] → [texts, size]."""
    if not np.isfinite(vectors).all():
        raise BackendError("The model computed numbers that are not finite: load it with another dtype.")
    if dimensions is not None:
        if dimensions > vectors.shape[1]:
            message = f"`dimensions` is above the model's {vectors.shape[1]}."
            raise CallerError(message, param="dimensions")
        vectors = vectors[:, :dimensions]
    if config.normalize or dimensions is not None:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _SMALLEST)
    return np.ascontiguousarray(vectors, "<f4")
