"""Renders a conversation as a prompt, with the template of the model.

The template is Jinja as Hugging Face runs it (https://huggingface.co/docs/transformers/chat_templating), in a sandbox,
since it comes from a download. It writes control tokens such as `<|im_end|>` as text. The author of a message must not
be able to do so: before rendering, a mark is inserted into every spelling of a control token in a message; after it the
prompt is cut at the marks and each part encoded separately, so no such spelling is left.

For a template without tools, a system prompt describes them in the format of the Hermes models
(https://github.com/NousResearch/Hermes-Function-Calling).
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jinja2

from adapters.errors import CallerError
from adapters.wire.text.chat_jinja import ChatEnvironment
from runtimes.llm.text.answer_parser import think_format_of
from runtimes.llm.text.tokenizer import Tokenizer, UnsupportedTokenizer
from runtimes.llm.text.tool_parser import HERMES, format_of

_PROMPT = """You may call functions to help with the user's request. They are given within <tools></tools>:
<tools>
{tools}
</tools>

For each call write a JSON object with the function's name and its arguments within <tool_call></tool_call>:
<tool_call>
{{"name": "function-name", "arguments": {{"argument-name": "value"}}}}
</tool_call>"""


def in_words(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages as plain text: tools in the system message, calls in the assistant's, results in the user's."""
    result: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            _add_result(result, message["content"])
        elif calls := message.get("tool_calls"):
            result.append({"role": "assistant", "content": _calls(message["content"], calls)})
        else:
            result.append(dict(message))
    return _with_tools(result, tools) if tools else result


def _with_tools(messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    prompt = _PROMPT.format(tools="\n".join([json.dumps(tool, ensure_ascii=False) for tool in tools]))
    if not messages or messages[0]["role"] != "system":
        return [{"role": "system", "content": prompt}, *messages]
    return [messages[0] | {"content": f"{messages[0]['content']}\n\n{prompt}"}, *messages[1:]]


def _calls(text: str, calls: Sequence[Mapping[str, Any]]) -> str:
    written = [f"<tool_call>\n{json.dumps(call['function'], ensure_ascii=False)}\n</tool_call>" for call in calls]
    return "\n".join([text, *written] if text else written)


def _add_result(messages: list[dict[str, Any]], result: str) -> None:
    """Append the result of a call. Results of one turn share a message: templates alternate user and assistant."""
    written = f"<tool_response>\n{result}\n</tool_response>"
    if messages and messages[-1].get("results"):
        messages[-1]["content"] += f"\n{written}"
    else:
        messages.append({"role": "user", "content": written, "results": True})


TAIL = 16
"""Tokens at the end of a prompt that are searched for the mark of a thought."""
Message = Mapping[str, Any]
"""`role`, `content` and perhaps `name`, `tool_calls`, `tool_call_id`."""


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
        self._own_format = format_of(source)
        self.tool_format = self._own_format or HERMES
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
            return prompt + self._tokenizer.encode(messages[-1]["content"], limit=left)
        rendered = self._rendered(messages, tools, answer, variables)
        return self._tokenizer.encode_parts(rendered.split(self._mark), limit)

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

    def _rendered(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        answer: bool,
        variables: Mapping[str, Any],
    ) -> str:
        """The prompt, with marks."""
        if self._own_format is None:
            messages, tools = in_words(messages, tools), ()
        marked = self._marked(messages)
        try:
            return self._environment.rendered(
                self._template,
                {
                    **self._marked(variables),
                    "messages": marked,
                    "add_generation_prompt": answer,
                    "bos_token": self._tokenizer.bos_token or "",
                    "eos_token": self._tokenizer.eos_token or "",
                    "tools": self._marked(tools) or None,
                    "documents": None,
                },
            )
        except Exception as error:  # a program that came with a download may fail in any way
            raise CallerError(f"The model's chat template refuses these messages: {error}", param="messages") from None

    def _marked(self, value: Any) -> Any:
        """All marked texts in a value."""
        if isinstance(value, str):
            return self._mark.join(self._tokenizer.spellings.cut(value, open_end=True))
        if isinstance(value, Mapping):
            return {self._marked(key): self._marked(one) for key, one in value.items()}
        return [self._marked(one) for one in value] if isinstance(value, list | tuple) else value
