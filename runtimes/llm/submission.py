"""From a request that was read to its sequences in the engine: what fits, how to sample, what to say of it."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from adapters.errors import CallerError, ContextTooLong, InferenceError
from runtimes.llm.chat_template import ChatTemplate
from runtimes.llm.choice import Choice, Wanted
from runtimes.llm.embedding_config import EmbeddingConfig
from runtimes.llm.engine import AsyncEngine, SamplingParams
from runtimes.llm.grammar import Compiled, Grammar, Grammars
from runtimes.llm.protocol import GenerateBody
from runtimes.llm.standing import Asker
from runtimes.llm.tokenizer import Tokenizer
from runtimes.llm.told_tokens import EchoedPrompt

_PLAIN = EmbeddingConfig()


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that can answer. `loaded_at` is unix time; `fingerprint` changes when answers may."""

    engine: AsyncEngine
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    loaded_at: int
    fingerprint: str
    embedding: EmbeddingConfig = _PLAIN
    """How its vectors are made."""
    answers: bool = True
    """Whether it generates anything: encoders only embed."""
    grammars: Grammars | None = None
    """None for a model without a token that ends an answer: then none can be held to anything."""


class Form(NamedTuple):
    """What an answer is held to, and the control tokens that its text shows."""

    rules: Compiled | None
    shown: Mapping[int, bytes] = {}


def submit(
    model: LoadedModel,
    body: GenerateBody,
    prompts: Sequence[list[int]],
    asker: Asker,
    left: Sequence[int],
    param: str,
    form: Form,
) -> list[Choice]:
    """All choices, which may have as many tokens as are `left` for their prompt, or an error and none."""
    choices: list[Choice] = []
    said = body.continue_token_ids or []
    submit = functools.partial(model.engine.submit, salt=asker.salt, standing=asker.standing)
    body.check_tokens(model.engine.vocab_size)
    try:
        for i, (prompt, max_tokens) in enumerate(zip(prompts, left, strict=True)):
            wanted = _wanted(model, body, i, prompt, max_tokens, form)
            for index in range(i * body.candidates, (i + 1) * body.candidates):
                params = _sampling(model, body, max_tokens, index)
                if len(said) < max_tokens or not said:
                    constraint = None if form.rules is None else form.rules.start(said)
                    generation = submit(prompt + said, params, continued=len(said), constraint=constraint)
                else:  # an answer that has all it may have is only to be ended
                    generation = submit(prompt, replace(params, max_tokens=0, min_tokens=0))
                choices.append(Choice(index, generation, model.tokenizer, wanted, said, prompt=i))
    except BaseException as error:
        for choice in choices:
            choice.cancel()
        if isinstance(error, ValueError) and not isinstance(error, InferenceError):
            raise CallerError(f"`{param}` is not valid: {error}.", param=param) from None
        raise
    return choices


def encode_prompt(model: LoadedModel, prompt: str | list[int]) -> list[int]:
    if isinstance(prompt, list):
        return prompt
    check_length(model, len(prompt), "prompt")
    # Whoever writes the whole prompt writes its control tokens too, as with token ids.
    return model.tokenizer.encode(prompt, allow_special=True, add_bos=True)


def check_length(model: LoadedModel, characters: int, param: str) -> None:
    """Refuse what cannot fit before time is spent on encoding it."""
    at_least = characters // model.tokenizer.longest_piece
    if at_least > model.engine.max_model_len:
        raise ContextTooLong(
            f"`{param}` has more than {at_least} tokens; this model's context has {model.engine.max_model_len}.",
            param=param,
        )


def room(model: LoadedModel, body: GenerateBody, prompt_tokens: int, default: int | None, param: str) -> int:
    """How many tokens the answer may have. What was asked for must fit; the default is cut to what does."""
    context = model.engine.max_model_len
    left = context - prompt_tokens
    asked = 0 if body.max_tokens is None else body.max_tokens
    if left < max(asked, 1):
        raise ContextTooLong(
            f"This model's context has {context} tokens; `{param}` takes {prompt_tokens} and the answer {asked}:"
            " shorten one of them.",
            param=param,
        )
    if body.max_tokens is not None:
        return asked
    return left if default is None else min(default, left)


def _sampling(model: LoadedModel, body: GenerateBody, max_tokens: int, index: int) -> SamplingParams:
    scores = body.echo_told and max_tokens == 0
    # Which of several answers is the best their log-probabilities tell.
    chosen = 0 if body.candidates > (body.n or 1) else None
    return body.params(
        1 if scores else max_tokens,
        choice=index,
        eos_token_ids=model.tokenizer.eos_token_ids,
        logprobs=chosen if body.told is None else body.told,
        prompt_logprobs=body.told if body.echo_told else None,
    )


def _wanted(
    model: LoadedModel, body: GenerateBody, index: int, prompt: list[int], max_tokens: int, form: Form
) -> Wanted:
    """The text of the answers to one of the prompts."""
    return Wanted(
        stops=body.stops,
        includes_stop=body.include_stop_str_in_output or False,
        min_tokens=body.min_tokens or 0,
        echo=EchoedPrompt(prompt, model.tokenizer, body.written(index)) if body.echoes else None,
        only_echo=body.echo_told and max_tokens == 0,
        told=body.told is not None,
        shown=form.shown,
    )


async def compiled(model: LoadedModel, grammar: Grammar | None) -> Compiled | None:
    if grammar is None:
        return None
    if model.grammars is None:
        message = "This model has no token that ends an answer: none can be held to a form."
        raise CallerError(message, param=grammar.param, code="unsupported_parameter")
    return await model.grammars.compiled(grammar)
