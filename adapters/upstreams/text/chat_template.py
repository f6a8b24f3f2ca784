"""Renders a conversation as a prompt with the configured template, for servers that accept only prompts.

A name such as `chatml` is a template that is part of Headrace (`templates`), and `file:PATH` is a template file. A
folder is a model's own, in Hugging Face's layout: `chat_template.jinja`, `tokenizer_config.json`, which also has the
tokens that begin and end a text, or `chat_template.json`.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.registry import Unmakeable
from adapters.requests import ChatRequest
from adapters.wire import decoding
from adapters.wire.text.chat_jinja import ChatEnvironment, for_template

BUNDLED = Path(__file__).parent / "templates"
MAX_FILE = 4 * 1024 * 1024
_NULL = Raw(b"null")
_EOS = {"chatml": "<|im_end|>", "llama3": "<|eot_id|>", "gemma": "<end_of_turn>"}
_OURS = frozenset(("messages", "add_generation_prompt", "bos_token", "eos_token", "tools", "documents"))

_flag = msgspec.json.Decoder(bool | None).decode
_object = msgspec.json.Decoder(dict[str, Any] | None).decode


class _Named(msgspec.Struct):
    name: str
    template: str


class _Token(msgspec.Struct):
    content: str


class _TokenizerConfig(msgspec.Struct):
    """The fields of a model's `tokenizer_config.json` that templates need. It may have several named templates."""

    chat_template: str | list[_Named] | None = None
    eos_token: str | _Token | None = None


class _ProcessorTemplate(msgspec.Struct):
    """A model's `chat_template.json`."""

    chat_template: str


_config = msgspec.json.Decoder(_TokenizerConfig).decode


class TemplateError(Unmakeable):
    """The configured template is invalid; the message has the reason."""


class PromptTemplate:
    """Renders conversations. Raises `TemplateError` if `source` is not a valid template.

    `bos` is the token that begins a text; empty if the server adds it to every prompt.
    """

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        self._environment = ChatEnvironment()
        try:
            self._template = self._environment.from_string(source)
        except (jinja2.TemplateError, SyntaxError, RecursionError, MemoryError) as error:  # nested too deep
            raise TemplateError(f"is not valid Jinja: {error}") from None
        self._bos, self._eos = bos, eos
        self._takes_parts = "content" in source and ".type" in source.replace("['type']", ".type")

    def prompt(self, request: ChatRequest) -> str:
        """Render a conversation up to the start of the response. Raises `CallerError` if the template rejects it.

        With `continue_final_message` the last message is the beginning of the response. Its text is appended to the
        prompt, without the template's markup for a complete message.
        """
        fields = request.fields
        messages = for_template(fields["messages"], parts=self._takes_parts)
        more = _field(fields, "chat_template_kwargs", _object) or {}
        if taken := _OURS.intersection(more):
            name = min(taken)
            raise CallerError(f"`chat_template_kwargs` may not hold `{name}`.", param="chat_template_kwargs")
        if _field(fields, "continue_final_message", _flag):
            begun = messages[-1]
            if begun["role"] != "assistant" or len(messages) == 1 or not isinstance(begun.get("content"), str):
                raise CallerError(
                    "`continue_final_message` requires an assistant's text as the last message, after another one.",
                    param="continue_final_message",
                )
            return self.render(messages[:-1], more) + str(begun["content"])
        answer = _field(fields, "add_generation_prompt", _flag)
        return self.render(messages, more, answer=answer is not False)

    def render(
        self, messages: list[dict[str, Any]], more: Mapping[str, Any] | None = None, *, answer: bool = True
    ) -> str:
        """Render messages. `more` are further variables of the template. Raises `CallerError`."""
        values: dict[str, Any] = {
            **(more or {}),
            "messages": messages,
            "add_generation_prompt": answer,
            "bos_token": self._bos,
            "eos_token": self._eos,
            "tools": None,
            "documents": None,
        }
        try:
            return self._environment.rendered(self._template, values)
        except Exception as error:  # a template is a downloaded program: any exception is possible
            message = str(error)[:500]
            raise CallerError(
                f"The model's chat template refuses these messages: {message}", param="messages"
            ) from None


@lru_cache(64)
def load(name: str, bos: str = "") -> PromptTemplate:
    """Load a template by its name in the configuration. Templates are cached. Raises `TemplateError`."""
    try:
        if name.startswith("file:"):
            return PromptTemplate(_read(Path(name.removeprefix("file:"))), bos=bos)
        bundled = BUNDLED / f"{name}.jinja"
        if bundled.parent == BUNDLED and bundled.is_file():
            return PromptTemplate(_read(bundled), bos=bos, eos=_EOS.get(name, "</s>"))
        return _of_model(Path(name), bos)
    except TemplateError as error:
        raise TemplateError(f"chat_template {name}: {error}") from None


def _of_model(folder: Path, bos: str) -> PromptTemplate:
    if not folder.is_dir():
        names = ", ".join(sorted(file.stem for file in BUNDLED.glob("*.jinja")))
        raise TemplateError(f"there is no such folder, and templates by name are {names}; a file is file:PATH")
    config = _TokenizerConfig()
    if (file := folder / "tokenizer_config.json").exists():
        try:
            config = _config(_read(file))
        except (msgspec.DecodeError, RecursionError) as error:
            raise TemplateError(f"its tokenizer_config.json cannot be read: {error}") from None
    written = folder / "chat_template.jinja"
    source = _read(written) if written.exists() else config.chat_template
    if isinstance(source, list):
        source = {entry.name: entry.template for entry in source}.get("default")
    if source is None and (older := folder / "chat_template.json").exists():
        source = _of_processor(older)
    if source is None:
        raise TemplateError("its tokenizer_config.json has no chat template, and there is no chat_template.jinja")
    eos = config.eos_token
    return PromptTemplate(source, bos=bos, eos=eos.content if isinstance(eos, _Token) else eos or "")


def _of_processor(file: Path) -> str:
    """Where older models with pictures have it."""
    try:
        return msgspec.json.decode(_read(file), type=_ProcessorTemplate).chat_template
    except (msgspec.DecodeError, RecursionError) as error:
        raise TemplateError(f"its chat_template.json cannot be read: {error}") from None


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE + 1)
        if len(content) > MAX_FILE:
            raise TemplateError(f"{file} is larger than {MAX_FILE // 1024**2} MiB")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise TemplateError(f"{file} cannot be read: {reason}") from None


def _field(fields: Mapping[str, Raw], name: str, decode: Any) -> Any:
    try:
        return decode(fields.get(name, _NULL))
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"`{name}` is not valid: {error}.", param=name) from None
