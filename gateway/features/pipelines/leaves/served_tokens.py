"""The nodes `tokenize` and `detokenize` with the tokenizer of a model: its servers encode and decode."""

from __future__ import annotations

import msgspec

from adapters import offload
from adapters.errors import BackendError, StepFailed
from adapters.requests import AppRequest
from adapters.wire import decoding
from config.schema.pipelines.leaves import DetokenizeConfig, TokenizeConfig
from gateway.features.pipelines.each import for_each
from gateway.features.pipelines.leaves.token_rows import fitting, padded, rows_of, text_output, texts_of
from gateway.features.pipelines.scope import REQUEST, Bound, Estimate, Output, StepScope
from gateway.features.pipelines.values import UnusableValueError

AT_ONCE = 8
"""Texts that are sent at the same time, each in a request of its own."""
MAX_ANSWER = 64 * 1024 * 1024


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Text(msgspec.Struct):
    prompt: str


_encode = msgspec.json.Encoder().encode
_tokens = msgspec.json.Decoder(_Tokens).decode
_text = msgspec.json.Decoder(_Text).decode


class ServedTokenizeNode:
    """Encodes texts as the servers of a model encode a prompt."""

    def __init__(self, config: TokenizeConfig) -> None:
        assert config.model is not None
        self._model = config.model
        self._config = config

    async def run(self, scope: StepScope) -> Output:
        async def encoded(text: str) -> list[int]:
            fields = {"model": self._model, "prompt": text, "add_special_tokens": self._config.special}
            body = await answered(scope, self._model, "/tokenize", fields)
            try:
                row = (await offload.parse(body, _tokens, body)).tokens
            except decoding.MALFORMED_JSON:
                raise _no_answer() from None
            return fitting(row, self._config)

        texts = texts_of(await scope.value(f"{REQUEST}.text"))
        return Output(padded(await for_each(texts, encoded, AT_ONCE), self._config.pad_id))

    def bound(self, estimate: Estimate) -> Bound:
        return Bound()


class ServedDetokenizeNode:
    """Decodes rows of tokens as the servers of a model do."""

    def __init__(self, config: DetokenizeConfig) -> None:
        assert config.model is not None
        self._model = config.model
        self._skip_special = config.skip_special

    async def run(self, scope: StepScope) -> Output:
        try:
            rows = rows_of(await scope.value(f"{REQUEST}.ids"))
            if rows.size and int(rows.min()) < 0:
                raise UnusableValueError("`ids` has a negative token")
        except UnusableValueError as error:
            raise scope.fail(error) from None

        async def decoded(row: list[int]) -> str:
            fields = {"model": self._model, "tokens": row, "skip_special_tokens": self._skip_special}
            body = await answered(scope, self._model, "/detokenize", fields)
            try:
                return (await offload.parse(body, _text, body)).prompt
            except decoding.MALFORMED_JSON:
                raise _no_answer() from None

        return Output(text_output(await for_each(rows.tolist(), decoded, AT_ONCE)))

    def bound(self, estimate: Estimate) -> Bound:
        return Bound()


async def answered(scope: StepScope, model: str, path: str, fields: dict[str, object]) -> bytes:
    """The body of a model's answer to a call of a path. Raises `InferenceError`."""
    assert scope.call.models is not None
    body = _encode(fields)
    request = AppRequest(model=model, path=path, body=body, size=len(body), content_type="application/json", stale=True)
    answer = await scope.call.models.call(model, request, scope.call)
    if answer.body is not None:
        return answer.body
    pieces, size = [], 0
    try:
        async for piece in answer:
            size += len(piece)
            if size > MAX_ANSWER:
                raise BackendError(f"The upstream's answer has more than {MAX_ANSWER} bytes.")
            pieces.append(piece)
    finally:
        await answer.aclose()
    return b"".join(pieces)


def _no_answer() -> StepFailed:
    return StepFailed("The servers of the model answer with no tokens and no text.")
