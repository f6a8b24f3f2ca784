"""A conversation to a prompt, by the template that came with the model.

The template is Jinja as Hugging Face runs it (https://huggingface.co/docs/transformers/chat_templating), in a
sandbox, since it came with a download. It writes control tokens such as `<|im_end|>` as text. Whoever writes a
message must not be able to: before rendering, a mark is put inside every spelling of a control token in a
message; after it the prompt is cut at the marks and each part encoded by itself, so no such spelling is left.
"""

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from adapters.errors import CallerError
from runtimes.llm.tokenizer import Tokenizer, UnsupportedTokenizer

Message = Mapping[str, str]
"""`role`, `content` and perhaps `name`."""


class ChatTemplate:
    """Renders conversations for one model. Raises UnsupportedTokenizer if `source` is no template."""

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise UnsupportedTokenizer(f"the model's chat template is not valid Jinja: {error}") from None
        self._tokenizer = tokenizer
        self._spellings = _spelling_pattern(tokenizer.special_tokens)
        # A character that Unicode reserves for such use, and chance, so that no message can hold the mark.
        self._mark = "\ufdd0" + secrets.token_hex(8)

    def encode(self, messages: Sequence[Message], *, answer: bool = True, begun: bool = False) -> list[int]:
        """The prompt's ids, up to where the assistant's answer begins; without `answer`, to where the last message
        ends. Raises CallerError if the template refuses them.

        An answer that has `begun` is the last message. Its text follows the prompt that it answers as a model
        says it, whatever the template does to a message that has ended.
        """
        if begun:
            return self.encode(messages[:-1]) + self._tokenizer.encode(messages[-1]["content"])
        marked = [{key: self._marked(value) for key, value in message.items()} for message in messages]
        try:
            prompt = self._template.render(
                messages=marked,
                add_generation_prompt=answer,
                bos_token=self._tokenizer.bos_token or "",
                eos_token=self._tokenizer.eos_token or "",
                tools=None,
                documents=None,
            )
        except Exception as error:  # a program that came with a download may fail in any way
            raise CallerError(f"The model's chat template refuses these messages: {error}", param="messages") from None
        parts = prompt.split(self._mark)
        return [id for part in parts for id in self._tokenizer.encode(part, allow_special=True)]

    def _marked(self, text: str) -> str:
        if self._spellings is None:
            return text
        return self._spellings.sub(lambda match: match[0] + self._mark, text)


def _spelling_pattern(tokens: Iterable[str]) -> re.Pattern[str] | None:
    """Matches the first character of every control token's spelling, and of a beginning of one at the very end
    of a text, which what the template writes next could complete."""
    whole = sorted((t for t in tokens if t), key=len, reverse=True)
    if not whole:
        return None
    begun = sorted({token[:end] for token in whole for end in range(1, len(token))}, key=len, reverse=True)
    alternatives = [re.escape(token) for token in whole]
    if begun:
        alternatives.append(rf"(?:{'|'.join(map(re.escape, begun))})\s*\Z")
    return re.compile(rf"(?=(?:{'|'.join(alternatives)})).", re.DOTALL)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes for HTML, which no model has seen."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
