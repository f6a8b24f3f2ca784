"""From a decoded request to its sequences in the engine: prompts, lengths, sampling, and the text to return."""

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from adapters.errors import CallerError, ContextTooLong, InferenceError
from adapters.wire.internal_headers import InternalHeaders
from runtimes.llm.api.choice import NO_STOPS, AnswerChoice, ChoiceOptions
from runtimes.llm.api.encoding_thread import EncodingThread
from runtimes.llm.api.messages import Message
from runtimes.llm.api.pictures import PictureReader, RequestPictures
from runtimes.llm.api.requests import GenerateBody
from runtimes.llm.api.token_logprobs import EchoedPrompt, ScoredPrompt, TokenNames, scored_prompt
from runtimes.llm.engine.adapters import AdapterPool
from runtimes.llm.engine.async_engine import AsyncEngine, SamplingParams
from runtimes.llm.engine.classifier_loader import Classifier
from runtimes.llm.grammar.constraint import Compiled, Grammar, Grammars
from runtimes.llm.grammar.think_rules import ThoughtRules
from runtimes.llm.model.embedding_config import EmbeddingConfig
from runtimes.llm.model.encoders.dense import DenseLayers
from runtimes.llm.picture_rows import PictureRows
from runtimes.llm.sampling_params import BadWords, spelled
from runtimes.llm.sequence import Constraint, PhaseTimes, Standing, StepAdapter
from runtimes.llm.text.answer_parser import ThinkParser
from runtimes.llm.text.chat_template import ChatTemplate
from runtimes.llm.text.stop_strings import StopTable
from runtimes.llm.text.tokenizer import Tokenizer, TooManyTokens
from runtimes.llm.weights.generation_config import SamplingDefaults
from runtimes.spans import around


class RequestOrigin(NamedTuple):
    """Only requests of the same `salt` share pages of the prefix cache."""

    salt: bytes
    standing: Standing

    @classmethod
    def of(cls, headers: InternalHeaders, salt: str | None, priority: int | None, now: float) -> "RequestOrigin":
        """Combine the gateway's `headers` with the body's fields: the body's `priority` can only lower that of the
        headers, and its `salt` divides the tenant's own cache."""
        owner = headers.tenant if headers.salt is None else headers.salt
        ranks = [number for number in (headers.priority, priority) if number is not None]
        standing = Standing(headers.tenant, headers.share, max(ranks, default=0), now + headers.seconds)
        key = f"{owner}\n{salt or ''}".encode(errors="surrogatepass")
        return cls(blake2b(key, digest_size=16).digest(), standing)


TURN = 20
"""Characters whose encoding takes as long as a template takes for one message."""
SCORE = 4
"""Characters whose encoding takes as long as the output of one log-probability."""
_PLAIN = EmbeddingConfig()
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A loaded model. `loaded_at` is Unix time; `fingerprint` changes when answers may."""

    engine: AsyncEngine
    tokenizer: Tokenizer
    chat_template: ChatTemplate | str | None
    """A text is the reason for which the template cannot be used."""
    loaded_at: int
    fingerprint: str
    embedding: EmbeddingConfig = _PLAIN
    """The computation of the model's vectors."""
    dense: DenseLayers | None = None
    """Layers between a text's vector and its client's."""
    answers: bool = True
    """Whether it generates text: encoders only embed."""
    classifier: Classifier | None = None
    """The head of a model that scores or labels texts."""
    grammars: Grammars | None = None
    """None for a model without an end token: no constraint is possible then."""
    encoding: EncodingThread = field(default_factory=EncodingThread)
    tool_template: ChatTemplate | None = None
    """Another template for chats with tools."""
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    pictures: PictureReader | str = "it is a model of text"
    """A text is the reason for which pictures are refused."""
    adapters: AdapterPool | None = None
    """Other names by which clients request the model, each with an adapter."""

    def template(self, otherwise: str, *, tools: bool) -> ChatTemplate:
        """The template of a chat. Raises CallerError, with the advice `otherwise`, if there is none."""
        if tools and self.tool_template is not None:
            return self.tool_template
        if isinstance(self.chat_template, ChatTemplate):
            return self.chat_template
        reason = "has no chat template" if self.chat_template is None else f"cannot chat: {self.chat_template}"
        raise CallerError(f"This model {reason}: {otherwise}.", param="model")


class AnswerForm(NamedTuple):
    """The constraint of an answer, and the control tokens in its text. `think` parses its thoughts."""

    rules: Compiled | None
    shown: Mapping[int, bytes] = {}
    thoughts: ThoughtRules | None = None
    think: Callable[[], ThinkParser] | None = None

    def start(self, continued: Sequence[int]) -> Constraint | None:
        """The constraint of a new answer, after its tokens `continued`."""
        begin = (lambda: None) if self.rules is None else self.rules.start
        place: Constraint | None = begin() if self.thoughts is None else self.thoughts.start(begin)
        if place is not None:
            for token_id in continued:
                place.advance(token_id)
        return place


class Words(NamedTuple):
    """Stop strings, texts that do not appear in an answer, and tokens that the client expects in it."""

    stops: StopTable
    bad: BadWords | None
    predicted: Sequence[int]

    @classmethod
    async def of(cls, model: LoadedModel, body: GenerateBody) -> "Words":
        stops = body.stops
        table = await model.encoding.run(sum(map(len, stops)), lambda: StopTable(stops)) if stops else NO_STOPS
        predicted = await _predicted(model, body)
        if not (words := body.bad_words):
            return cls(table, None, predicted)
        # Each is encoded twice, and a short one takes as long as a message.
        work = sum(map(len, words)) + 2 * TURN * len(words)
        encode = functools.partial(model.tokenizer.encode, continues=True)
        return cls(table, await model.encoding.run(work, functools.partial(spelled, words, encode)), predicted)


async def _predicted(model: LoadedModel, body: GenerateBody) -> list[int]:
    """The tokens of the prediction, no more than an answer may have; none for an engine that does not speculate."""
    text, context = body.predicted, model.engine.max_model_len
    if not text or not model.engine.speculates:
        return []
    text = text[: context * model.tokenizer.longest_piece]
    return await model.encoding.run(len(text), lambda: model.tokenizer.first_ids(text, context))


def submit(
    model: LoadedModel,
    body: GenerateBody,
    prompts: Sequence[list[int]],
    origin: RequestOrigin,
    left: Sequence[int],
    param: str,
    form: AnswerForm,
    words: Words,
    adapter: StepAdapter | None = None,
    pictures: PictureRows | None = None,
) -> list[AnswerChoice]:
    """All choices, each with at most `left` tokens for its prompt, or an error and no choice."""
    choices: list[AnswerChoice] = []
    continued = body.continue_token_ids or []
    submit = functools.partial(
        model.engine.submit, salt=origin.salt, standing=origin.standing, adapter=adapter, pictures=pictures,
        prediction=words.predicted,
    )  # fmt: skip
    body.check_tokens(model.engine.vocab_size)
    _check_places(model, body, len(prompts))
    try:
        for i, (prompt, max_tokens) in enumerate(zip(prompts, left, strict=True)):
            options = _text_options(model, body, i, prompt, max_tokens, form, words)
            for index in range(i * body.candidates, (i + 1) * body.candidates):
                params = _sampling(model, body, max_tokens, index, words)
                if len(continued) < max_tokens or not continued:
                    constraint = form.start(continued)
                    generation = submit(
                        prompt + continued,
                        params,
                        continued=len(continued),
                        constraint=constraint,
                        times=None if around.get() is None else PhaseTimes(model.engine.clock()),
                    )
                else:  # an answer of full length only needs its end
                    generation = submit(prompt, replace(params, max_tokens=0, min_tokens=0))
                choices.append(AnswerChoice(index, generation, model.tokenizer, options, continued, prompt=i))
    except BaseException as error:
        for choice in choices:
            choice.cancel()
        if isinstance(error, ValueError) and not isinstance(error, InferenceError):
            raise CallerError(f"`{param}` is not valid: {error}.", param=param) from None
        raise
    return choices


async def encode_prompt(model: LoadedModel, prompt: str | list[int]) -> list[int]:
    """Encode a prompt. Raises ContextTooLong as soon as the prompt is too long."""
    if isinstance(prompt, list):
        return prompt
    # A client that writes the whole prompt may write control tokens too, as with token ids.
    encode = functools.partial(model.tokenizer.encode, prompt, allow_special=True, add_bos=True)
    return await encode_within(model, encode, len(prompt), model.engine.max_model_len, "prompt")


async def encode_chat(
    model: LoadedModel,
    template: ChatTemplate,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    limit: int,
    pictures: RequestPictures | None = None,
    **how: Any,
) -> list[int]:
    """The prompt of a conversation with its `pictures`; `how` is for the template. Raises CallerError."""
    characters = sum([message.length for message in messages]) + (len(_encode(tools)) if tools else 0)
    if variables := how.get("variables"):
        characters += len(_encode(variables))
    encode = functools.partial(_encode_chat, template, messages, tools=tools, **how)
    prompt = await encode_within(model, encode, characters, limit, "messages", turns=len(messages))
    if pictures is None:
        return prompt
    if len(prompt := pictures.placed_in(prompt)) > limit:
        raise _too_long(model, limit, "messages")
    return prompt


def _encode_chat(template: ChatTemplate, messages: Sequence[Message], **how: Any) -> list[int]:
    return template.encode([message.for_template() for message in messages], **how)


async def encode_within(
    model: LoadedModel, encode: Callable[..., list[int]], characters: int, limit: int, param: str, turns: int = 0
) -> list[int]:
    """The ids that `encode` returns for that many characters: `limit` at most, or ContextTooLong.

    A text that cannot fit the context, and a conversation of more turns than the context has tokens, is refused before
    it is encoded. A large one is encoded in a thread.
    """
    context = model.engine.max_model_len
    if characters > context * model.tokenizer.longest_piece or turns > context:
        raise _too_long(model, context, param)
    try:
        work = functools.partial(encode, limit=limit)
        return await model.encoding.run(characters + turns * TURN, work)
    except TooManyTokens:
        raise _too_long(model, limit, param) from None


def _too_long(model: LoadedModel, limit: int, param: str) -> ContextTooLong:
    message = f"`{param}` has more than {limit} tokens; this model's context has {model.engine.max_model_len}."
    return ContextTooLong(message, param=param)


def room(model: LoadedModel, body: GenerateBody, prompt_tokens: int, default: int | None, param: str) -> int:
    """The token limit of the answer. A requested limit must fit into the context; a default is reduced to fit."""
    context = model.engine.max_model_len
    left = context - prompt_tokens
    requested = 0 if body.max_tokens is None else body.max_tokens
    if left < (1 if body.max_tokens is None else requested):
        raise ContextTooLong(
            f"This model's context has {context} tokens; `{param}` takes {prompt_tokens} and the answer {requested}:"
            " shorten one of them.",
            param=param,
        )
    if body.max_tokens is not None:
        return requested
    return left if default is None else min(default, left)


def _check_places(model: LoadedModel, body: GenerateBody, prompts: int) -> None:
    """Raise CallerError for more answers than the queue may hold: a retry cannot succeed."""
    answers, places = prompts * body.candidates, model.engine.max_queue
    if answers > places:
        param = "prompt" if body.candidates == 1 else "n" if body.candidates == body.n else "best_of"
        message = f"`{param}` needs {answers} answers at once: this server's queue has {places} places."
        raise CallerError(message, param=param)


def _sampling(model: LoadedModel, body: GenerateBody, max_tokens: int, index: int, words: Words) -> SamplingParams:
    # Answers are ranked by their log-probabilities.
    chosen = 0 if body.candidates > (body.n or 1) else None
    return body.params(
        1 if _only_prompt(body, max_tokens) else max_tokens,
        choice=index,
        eos_token_ids=model.tokenizer.eos_token_ids,
        logprobs=chosen if body.num_logprobs is None else body.num_logprobs,
        prompt_logprobs=_scored(body, first=index % body.candidates == 0),
        bad_words=words.bad,
        defaults=model.sampling,
    )


def _scored(body: GenerateBody, *, first: bool) -> int | None:
    """The number of likeliest tokens that one of a prompt's answers computes for the prompt's log-probabilities."""
    counts = [body.num_logprobs if body.echoes_logprobs else None, body.prompt_logprobs if first else None]
    return max([count for count in counts if count is not None], default=None)


def scored_prompts(
    model: LoadedModel, prompts: Sequence[list[int]], count: int
) -> Callable[[AnswerChoice], Awaitable[ScoredPrompt]]:
    """Returns the log-probabilities of the prompt of a choice, in vLLM's format."""
    names = TokenNames(model.tokenizer)

    async def scored(choice: AnswerChoice) -> ScoredPrompt:
        prompt = prompts[choice.prompt]
        work = functools.partial(scored_prompt, prompt, choice.prompt_logprobs, count, names)
        return await model.encoding.run(SCORE * len(prompt) * (count + 1), work)

    return scored


def _only_prompt(body: GenerateBody, max_tokens: int) -> bool:
    return max_tokens == 0 and (body.echoes_logprobs or body.prompt_logprobs is not None)


def _text_options(
    model: LoadedModel,
    body: GenerateBody,
    index: int,
    prompt: list[int],
    max_tokens: int,
    form: AnswerForm,
    words: Words,
) -> ChoiceOptions:
    """The format of the text of the answers to one prompt."""
    shown = model.tokenizer.special_spellings if body.skip_special_tokens is False else {}
    return ChoiceOptions(
        stops=words.stops,
        includes_stop=body.include_stop_str_in_output or False,
        min_tokens=body.min_tokens or 0,
        echo=EchoedPrompt(prompt, model.tokenizer, body.written(index)) if body.echoes else None,
        only_prompt=_only_prompt(body, max_tokens),
        num_logprobs=body.num_logprobs,
        shown={**shown, **form.shown},
        think=form.think,
    )


async def read_pictures(model: LoadedModel, messages: Sequence[Message]) -> RequestPictures | None:
    """The pictures of a chat, which the caller releases; None without any. Raises CallerError, CapacityError."""
    if not (parts := [part for message in messages for part in message.pictures]):
        return None
    if isinstance(model.pictures, str):
        message = f"`{parts[0].param}` is a picture, and this model reads none: {model.pictures}."
        raise CallerError(message, param=parts[0].param, code="unsupported_parameter")
    if len(parts) * model.pictures.least_tokens > model.engine.max_model_len:
        raise _too_long(model, model.engine.max_model_len, "messages")
    return await model.pictures.read(parts)


async def compiled(model: LoadedModel, grammar: Grammar | None, tenant: str) -> Compiled | None:
    if grammar is None:
        return None
    if model.grammars is None:
        message = "This model has no token that ends an answer, so it cannot follow a grammar."
        raise CallerError(message, param=grammar.param, code="unsupported_parameter")
    return await model.grammars.compiled(grammar, tenant)
