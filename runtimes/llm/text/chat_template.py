"""Renders a conversation as a prompt, with the template of the model.

The template is Jinja as Hugging Face runs it (https://huggingface.co/docs/transformers/chat_templating), in a sandbox,
since it comes from a download. It writes control tokens such as `<|im_end|>` as text. The author of a message must not
be able to do so: before rendering, a mark is inserted into every spelling of a control token in a message; after it the
prompt is cut at the marks and each part encoded separately, so no such spelling is left.

The prompt without its marks must be the one without any. If it is not, the template computes with a marked text. Then
the texts of the template itself are marked instead (`own_marks`), and the spellings between them are cut.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import jinja2

from adapters.errors import CallerError
from adapters.wire.text.chat_jinja import ChatEnvironment
from runtimes.llm.text.answer_parser import think_format_of
from runtimes.llm.text.own_marks import OwnMarks
from runtimes.llm.text.template_features import Message, TemplateFeatures
from runtimes.llm.text.tokenizer import Tokenizer, UnsupportedTokenizer
from runtimes.llm.text.tool_parser import HERMES, format_of
from runtimes.llm.text.tool_words import in_words, joined

TAIL = 16
"""Tokens at the end of a prompt that are searched for the mark of a thought."""


class ChatTemplate:
    """Renders conversations for one model. Raises UnsupportedTokenizer if `source` is no template."""

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        try:
            self._environment = ChatEnvironment()
            self._template = self._environment.from_string(source)
        except (
            jinja2.TemplateError,
            SyntaxError,
            RecursionError,
            MemoryError,
        ) as error:  # of templates nested too deep
            raise UnsupportedTokenizer(f"the model's chat template is not valid Jinja: {error}") from None
        self.own_format = format_of(source)
        """The format of calls in the template; None if it has no tools, or another format."""
        self.tool_format = self.own_format or HERMES
        """The format of the model's calls."""
        special = tokenizer.special_tokens
        self.tool_marks = {special[mark]: mark.encode() for mark in self.tool_format.marks if mark in special}
        """The control tokens of the tool format."""
        self.think_format = think_format_of(source)
        """The format of the model's thoughts; None if it writes none."""
        thoughts = self.think_format or ()
        self.think_marks = {special[mark]: mark.encode() for mark in thoughts if mark in special}
        self.source = source
        self._tokenizer = tokenizer
        # A character that Unicode reserves for such use, and chance, so that no message can hold the mark.
        self._mark = "\ufdd0" + secrets.token_hex(8)
        self._named = {"bos_token": "", "eos_token": "", **tokenizer.named}
        self._features = TemplateFeatures.of(self._probed)

    def encode(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        answer: bool = True,
        begun: bool = False,
        variables: Mapping[str, Any] = MappingProxyType({}),
        limit: int | None = None,
    ) -> list[int]:
        """The prompt's ids, up to the beginning of the assistant's answer; without `answer`, to the end of the last
        message. Raises CallerError if the template refuses the messages, TooManyTokens for more than `limit`.

        An answer that has `begun` is the last message. Its text follows the prompt exactly as a model generates it,
        even if the template changes complete messages. `variables` are the template's own, such as whether the model
        thinks.
        """
        if begun:
            prompt = self.encode(messages[:-1], tools=tools, variables=variables, limit=limit)
            left = None if limit is None else limit - len(prompt)
            own = self._own_parts(joined(messages[-1]["content"]))
            return prompt + self._tokenizer.encode_parts(own, left, continues=True)
        if self.own_format is None:
            messages = in_words(messages, tools)
        messages = self._features.adapted(messages, own=bool(tools) and self.own_format is None)
        values = {
            "documents": None, **variables, "messages": messages, "add_generation_prompt": answer,
            "tools": [*tools] if tools and self.own_format is not None else None,
        }  # fmt: skip
        return self._tokenizer.encode_parts(self._parts(values), limit)

    def ends_in_thought(self, prompt: Sequence[int], begun: str | None = None) -> bool | None:
        """Whether the answer to the prompt continues a thought: of the template, or of the text that it has `begun`
        with.

        None if the answer may begin with a thought.
        """
        marks = self.think_format
        if marks is None:
            return False
        if begun is not None:
            return begun.rfind(marks.opens) > begun.rfind(marks.closes) if begun.strip() else None
        end = self._tokenizer.decode(prompt[-TAIL:], special=True).rstrip()
        return end.endswith(marks.opens) if end.endswith((marks.opens, marks.closes)) else None

    def _own_parts(self, text: str) -> list[str]:
        """The beginning of an answer: only the marks of thoughts and calls are control tokens there."""
        marks = [re.escape(mark) for mark in (*(self.think_format or ()), *self.tool_format.marks)]
        places = frozenset(match.start() for match in re.finditer("|".join(marks), text))
        return self._tokenizer.spellings.cut(text, except_at=places)

    def _parts(self, values: dict[str, Any]) -> list[str]:
        """The prompt, cut within the spellings of control tokens that the template does not write itself."""
        plain = self._rendered(self._environment, self._template, self._named, values)
        if (marked := self._marked(values)) == values:
            return [plain]
        parts = self._rendered(self._environment, self._template, self._named, marked).split(self._mark)
        if "".join(parts) == plain:
            return parts
        environment, template = self._own_marks
        named = {role: self._mark_own(text) for role, text in self._named.items()}
        own = self._rendered(environment, template, named, values).split(self._mark)
        if "".join(own) != plain:
            return parts
        starts = [0]
        for part in own[:-1]:
            starts.append(starts[-1] + len(part))
        return self._tokenizer.spellings.cut(plain, except_at=frozenset(starts[1:]))

    @cached_property
    def _own_marks(self) -> tuple[ChatEnvironment, jinja2.Template]:
        environment = OwnMarks(self._mark_own)
        return environment, environment.from_string(self.source)

    def _mark_own(self, text: str) -> str:
        return self._tokenizer.spellings.beginnings.sub(lambda first: self._mark + first[0], text)

    def _probed(self, messages: list[dict[str, Any]]) -> str | None:
        values = {"messages": messages, "add_generation_prompt": False, "tools": None, "documents": None}
        try:
            return self._rendered(self._environment, self._template, self._named, values)
        except CallerError:
            return None

    @staticmethod
    def _rendered(
        environment: ChatEnvironment, template: jinja2.Template, named: Mapping[str, str], values: Mapping[str, Any]
    ) -> str:
        try:
            return environment.rendered(template, {**named, **values})
        except Exception as error:  # a program that came with a download may fail in any way
            raise CallerError(f"The model's chat template refuses these messages: {error}", param="messages") from None

    def _marked(self, value: Any) -> Any:
        """All marked texts in a value."""
        if isinstance(value, str):
            return self._mark.join(self._tokenizer.spellings.cut(value, open_end=True))
        if isinstance(value, Mapping):
            return {self._marked(key): self._marked(one) for key, one in value.items()}
        return [self._marked(one) for one in value] if isinstance(value, list | tuple) else value
