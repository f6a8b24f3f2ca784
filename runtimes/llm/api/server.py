"""OpenAI's API over one engine: routes, checks, and requests to the engine."""

import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from adapters import offload
from adapters.errors import BackendError, CallerError, InferenceError, NotFound, Unavailable, Unsupported
from adapters.http1.message import Request, Response
from adapters.ignored_fields import IgnoredFields
from adapters.wire import internal_headers
from adapters.wire.field_names import RESPONSES
from adapters.wire.internal_headers import decode as decode_standing
from runtimes.llm.api import embeddings, responses
from runtimes.llm.api.answers import AnswerWriter, ChatWriter, CompletionWriter
from runtimes.llm.api.generation import Answering, AnswerStream
from runtimes.llm.api.http_bodies import (
    JSON,
    RETRY_SECONDS,
    STREAM_HEADERS,
    error_response,
    json_body,
    json_response,
    reported,
    streamed,
)
from runtimes.llm.api.metrics import CONTENT_TYPE as METRICS_TYPE
from runtimes.llm.api.metrics import ServerMetrics
from runtimes.llm.api.pictures import RequestPictures
from runtimes.llm.api.ranking import RankingRoutes
from runtimes.llm.api.request_decoding import decode_chat, decode_completion, decoded
from runtimes.llm.api.requests import ChatBody, GenerateBody
from runtimes.llm.api.submission import (
    AnswerForm,
    LoadedModel,
    RequestOrigin,
    Words,
    compiled,
    encode_chat,
    encode_prompt,
    read_pictures,
    room,
    scored_prompts,
    submit,
)
from runtimes.llm.api.text_bodies import decode_detokenize, decode_embeddings, decode_tokenize
from runtimes.llm.api.thinking import answer_parser, ignore_thinking, think_parser, thought_rules
from runtimes.llm.api.token_logprobs import TokenNames
from runtimes.llm.api.tokenize import text_of, tokens_of
from runtimes.llm.engine.adapters import AdapterLease
from runtimes.llm.engine.async_engine import EngineStats
from runtimes.llm.text.pairs import TextTokens

COMPLETION_MAX_TOKENS = 16
log = logging.getLogger(__name__)


class App:
    """The handler of `adapters.http1`. Until `model` is set, requests for it get 503 with `retry-after`."""

    def __init__(self, served_name: str, adapters: Collection[str] = ()) -> None:
        """`adapters` are other names of the model, each with an adapter of its own."""
        self.served_name = served_name
        self._names = (served_name, *adapters)
        self.model: LoadedModel | None = None
        self.metrics = ServerMetrics(self._stats)
        self._routes: dict[tuple[str, str], Callable[[Request], Awaitable[Response]]] = {
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/completions"): self._completions,
            ("POST", "/v1/responses"): self._responses,
            ("POST", "/v1/embeddings"): self._embeddings,
            **RankingRoutes(self._ready, self.metrics, served_name).routes(),
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/detokenize"): self._detokenize,
            ("GET", "/v1/models"): self._models,
            **{("GET", f"/v1/models/{name}"): functools.partial(self._model, name) for name in self._names},
            ("GET", "/health"): self._health,
            ("GET", "/metrics"): self._metrics,
        }

    async def __call__(self, request: Request) -> Response:
        offload.TENANT.set(request.headers.get(internal_headers.TENANT) or "")
        try:
            return await self._route(request)(request)
        except InferenceError as error:
            self.metrics.refused(error.code)
            if isinstance(error, BackendError):
                log.error("a request failed", exc_info=error)
            return error_response(error)

    def _route(self, request: Request) -> Callable[[Request], Awaitable[Response]]:
        path = request.path
        if handler := self._routes.get((request.method, path)):
            return handler
        if allowed := [method for method, routed in self._routes if routed == path]:
            raise CallerError(f"{path} takes {allowed[0]}, not {request.method}.", code="method_not_allowed")
        if path.startswith("/v1/models/"):
            raise self._unknown_model(path.removeprefix("/v1/models/"))
        raise CallerError(f"Unknown path: {path}.", code="unknown_path")

    # ── generation ────────────────────────────────────────────────────────────────────────────────────

    async def _chat(self, request: Request) -> Response:
        hints = IgnoredFields.of(request.headers)
        return reported(await self._answer_chat(request, await json_body(request), hints), hints)

    async def _responses(self, request: Request) -> Response:
        call = await responses.decode(await json_body(request), self.served_name)
        hints = IgnoredFields.of(request.headers)
        try:
            for name in call.ignored:
                hints.ignore(name)
            answer = await self._answer_chat(request, call.chat, hints)
        except CallerError as error:
            raise RESPONSES.of(error) from None
        if isinstance(answer.body, AnswerStream):
            return reported(Response(200, STREAM_HEADERS, call.events(answer.body)), hints)
        assert isinstance(answer.body, bytes)
        return reported(Response(200, [JSON], call.whole(answer.body)), hints)

    async def _answer_chat(self, request: Request, written: bytes, hints: IgnoredFields) -> Response:
        body = await decoded(decode_chat, written, hints)
        pictures = await read_pictures(self._answering(body.model), body.messages)
        if pictures is None:
            return await self._answer_turns(request, body, hints)
        try:
            return await self._answer_turns(request, body, hints, pictures)
        except BaseException:
            pictures.release()
            raise

    async def _answer_turns(
        self, request: Request, body: ChatBody, hints: IgnoredFields, pictures: RequestPictures | None = None
    ) -> Response:
        model = self._answering(body.model)
        use = body.tool_use()
        template = model.template("use /v1/completions", tools=use is not None)
        thinking_options, begun = body.thinking_options(), body.continue_final_message or False
        ignore_thinking(body, template, hints)
        if body.predicted and not model.engine.speculates:
            hints.ignore("prediction")
        prompt = await encode_chat(
            model,
            template,
            body.messages,
            () if use is None else use.declarations,
            model.engine.max_model_len,
            pictures,
            answer=body.add_generation_prompt is not False,
            begun=begun,
            variables=thinking_options.variables,
        )
        in_thought = template.ends_in_thought(prompt, body.messages[-1].text if begun else None)
        think = think_parser(template, in_thought)
        names = None if body.num_logprobs is None else TokenNames(model.tokenizer)
        writer = ChatWriter(
            body.model or self.served_name,
            model.fingerprint,
            with_usage=body.includes_usage,
            with_token_ids=body.return_token_ids or False,
            names=names,
            parser=answer_parser(think, use, template, thinking_options),
        )
        grammar = body.grammar()
        if use is not None:
            grammar = body.ending_by_itself(use.grammar(template.tool_format, model.tokenizer, grammar))
        shown = template.think_marks | ({} if use is None else template.tool_marks)
        thoughts = thought_rules(model, template, thinking_options, in_thought)
        origin = _origin(request, model, body.cache_salt, body.priority)
        rules = await compiled(model, grammar, origin.standing.tenant)
        form = AnswerForm(rules, shown, thoughts, think)
        return await self._generate(
            model, body, [prompt], origin, writer, form, "messages", default_max_tokens=None, pictures=pictures
        )

    async def _completions(self, request: Request) -> Response:
        hints = IgnoredFields.of(request.headers)
        context = None if self.model is None else self.model.engine.max_model_len
        decode = functools.partial(decode_completion, context=context)
        body = await decoded(decode, await json_body(request), hints)
        model = self._answering(body.model)
        prompts = [await encode_prompt(model, prompt) for prompt in body.prompts]
        names = None if body.num_logprobs is None else TokenNames(model.tokenizer, "bytes:")
        writer = CompletionWriter(
            body.model or self.served_name,
            model.fingerprint,
            with_usage=body.includes_usage,
            with_token_ids=body.return_token_ids or False,
            names=names,
        )
        origin = _origin(request, model, body.cache_salt, body.priority)
        form = AnswerForm(await compiled(model, body.grammar(), origin.standing.tenant))
        answer = await self._generate(
            model, body, prompts, origin, writer, form, "prompt", default_max_tokens=COMPLETION_MAX_TOKENS
        )
        return reported(answer, hints)

    async def _embeddings(self, request: Request) -> Response:
        hints = IgnoredFields.of(request.headers)
        body = await decoded(decode_embeddings, await json_body(request), hints)
        model = self._ready(body.model)
        embeddings.check_dimensions(body, model.embedding)
        if model.classifier is not None:
            message = f"The model `{self.served_name}` only scores texts: use /v1/rerank, /score or /classify."
            raise Unsupported(message, param="model")
        rows = await embeddings.rows_of(body, model)
        texts, origin = [TextTokens(row) for row in rows], _origin(request, model)
        with contextlib.ExitStack() as stack:
            adapter = None
            if (lease := await self._lease(model, body.model)) is not None:
                stack.callback(lease.release)
                adapter = lease.adapter
            outputs = await embeddings.pooled(texts, model, model.embedding.pooling, origin, self.metrics, adapter)
        tokens = sum(map(len, rows))
        content = await embeddings.body_of(body, outputs, model, body.model or self.served_name, tokens)
        return reported(Response(200, [JSON], content), hints)

    async def _tokenize(self, request: Request) -> Response:
        hints = IgnoredFields.of(request.headers)
        body = await decoded(decode_tokenize, await json_body(request), hints)
        model = self._ready(body.model)
        tokens = await tokens_of(body, model)
        result: dict[str, object] = {
            "count": len(tokens),
            "max_model_len": model.engine.max_model_len,
            "tokens": tokens,
        }
        if body.return_token_strs:
            names = functools.partial(model.tokenizer.names, tokens)
            result["token_strs"] = await model.encoding.run(len(tokens), names)
        return reported(json_response(200, result), hints)

    async def _detokenize(self, request: Request) -> Response:
        hints = IgnoredFields.of(request.headers)
        body = await decoded(decode_detokenize, await json_body(request), hints)
        model = self._ready(body.model)
        text = await model.encoding.run(len(body.tokens), functools.partial(text_of, body, model.tokenizer))
        return reported(json_response(200, {"prompt": text}), hints)

    async def _generate(
        self,
        model: LoadedModel,
        body: GenerateBody,
        prompts: Sequence[list[int]],
        origin: RequestOrigin,
        writer: AnswerWriter,
        form: AnswerForm,
        param: str,
        *,
        default_max_tokens: int | None,
        pictures: RequestPictures | None = None,
    ) -> Response:
        left = [room(model, body, len(prompt), default_max_tokens, param) for prompt in prompts]
        words = await Words.of(model, body)
        with contextlib.ExitStack() as stack:
            adapter = rows = None
            if pictures is not None:
                stack.callback(pictures.release)
                rows = await pictures.rows(origin.salt)
            if (lease := await self._lease(model, body.model)) is not None:
                stack.callback(lease.release)
                adapter = lease.adapter
                writer.fingerprint = f"{model.fingerprint}-{adapter.digest.hex()[:10]}"
            choices = submit(model, body, prompts, origin, left, param, form, words, adapter, rows)
            for choice in choices:
                if choice.continued_text:
                    writer.resume(choice.index, choice.continued_text)
            scored = None if body.prompt_logprobs is None else scored_prompts(model, prompts, body.prompt_logprobs)
            answering = Answering(
                choices, sum(map(len, prompts)), self.metrics, scored, stack.pop_all().close,
                predicted=bool(words.predicted),
            )  # fmt: skip
        if body.stream:
            return await streamed(AnswerStream(answering, writer, with_usage=body.includes_usage))
        try:
            chosen = body.candidates > (body.n or 1)
            finished = await (answering.best(body.n or 1) if chosen else answering.whole())
            return Response(200, [JSON], writer.whole(finished, answering.usage))
        finally:
            answering.close()

    def _ready(self, name: str | None) -> LoadedModel:
        """Select the model. A request without a model uses the only one."""
        if name is not None and name not in self._names:
            raise self._unknown_model(name)
        if self.model is None:
            raise Unavailable("The model is still loading.", code="model_loading", retry_after=RETRY_SECONDS)
        return self.model

    def _answering(self, name: str | None) -> LoadedModel:
        model = self._ready(name)
        if not model.answers:
            verb, paths = "embeds", "/v1/embeddings"
            if model.classifier is not None:
                verb, paths = "scores", "/v1/rerank, /score or /classify"
            message = f"The model `{self.served_name}` only {verb} texts: use {paths}."
            raise Unsupported(message, param="model")
        return model

    def _unknown_model(self, name: str) -> NotFound:
        names = ", ".join(f"`{own}`" for own in self._names)
        return NotFound(f"The model `{name}` does not exist: this server has {names}.", param="model")

    async def _lease(self, model: LoadedModel, name: str | None) -> AdapterLease | None:
        """The adapter that a request names; None for the model itself."""
        if model.adapters is None or name is None or name == self.served_name:
            return None
        return await model.adapters.lease(name)

    # ── about the server ──────────────────────────────────────────────────────────────────────────────

    async def _models(self, request: Request) -> Response:
        return json_response(200, {"object": "list", "data": [self._card(name) for name in self._names]})

    async def _model(self, name: str, request: Request) -> Response:
        return json_response(200, self._card(name))

    def _card(self, name: str) -> dict[str, str | int]:
        model = self._ready(name)
        card: dict[str, str | int] = {
            "id": name,
            "object": "model",
            "created": model.loaded_at,
            "owned_by": "headrace",
            "max_model_len": model.engine.max_model_len,
        }
        return card if name == self.served_name else card | {"parent": self.served_name}

    async def _health(self, request: Request) -> Response:
        if self.model is None:
            return json_response(503, {"status": "loading"}, ("retry-after", str(RETRY_SECONDS)))
        alive = self.model.engine.alive
        return json_response(200 if alive else 503, {"status": "ok" if alive else "dead"})

    async def _metrics(self, request: Request) -> Response:
        return Response(200, [("content-type", METRICS_TYPE)], self.metrics.text())

    def _stats(self) -> EngineStats | None:
        return None if self.model is None else self.model.engine.stats()


def _origin(
    request: Request, model: LoadedModel, salt: str | None = None, priority: int | None = None
) -> RequestOrigin:
    """The headers of the gateway, with the body's own salt and priority within their bounds."""
    return RequestOrigin.of(decode_standing(request.headers), salt, priority, model.engine.clock())
