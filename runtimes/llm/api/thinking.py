"""Thinking for one model: the parsers of its answers, their rules, and the fields that have no effect."""

import functools
from collections.abc import Callable

from adapters.ignored_fields import IgnoredFields
from runtimes.llm.api.requests import ChatBody
from runtimes.llm.api.submission import LoadedModel
from runtimes.llm.api.thinking_fields import FIELDS, ThinkingSettings
from runtimes.llm.api.tools import ToolUse
from runtimes.llm.grammar.think_rules import ThoughtRules
from runtimes.llm.text.answer_parser import AnswerParser, ThinkParser
from runtimes.llm.text.chat_template import ChatTemplate

_WITHOUT_EFFECT = {"reasoning_effort": "none", "enable_thinking": False}


def ignore_thinking(body: ChatBody, template: ChatTemplate, hints: IgnoredFields) -> None:
    """Omit fields without effect on a model that does not think. Raises CallerError on a strict route."""
    if template.think_format is not None:
        return
    for name in FIELDS:
        value = getattr(body, name)
        requested = value is not None and value != _WITHOUT_EFFECT.get(name)
        if name == "thinking" and body.thinking is not None:
            requested = body.thinking.type != "disabled"
        if requested and name not in template.source and name != "include_reasoning":
            hints.ignore(name)


def think_parser(template: ChatTemplate, in_thought: bool | None) -> Callable[[], ThinkParser] | None:
    """Creates the parser of one choice; None if its answer has no thought."""
    if template.think_format is None or in_thought is False:
        return None
    return functools.partial(ThinkParser, template.think_format, is_open=bool(in_thought))


def answer_parser(
    think: Callable[[], ThinkParser] | None,
    use: ToolUse | None,
    template: ChatTemplate,
    thinking_options: ThinkingSettings,
) -> Callable[[], AnswerParser] | None:
    """Creates the parser of one choice; None if its text is not divided."""
    if think is None and use is None:
        return None

    def make() -> AnswerParser:
        tools = None if use is None else use.parser(template.tool_format)
        return AnswerParser(None if think is None else think(), tools, hides_thoughts=not thinking_options.is_shown)

    return make


def thought_rules(
    model: LoadedModel, template: ChatTemplate, thinking_options: ThinkingSettings, in_thought: bool | None
) -> ThoughtRules | None:
    """The limits of an answer's thoughts; None without thoughts."""
    if template.think_format is None or in_thought is False:
        return None
    return ThoughtRules(
        format=template.think_format,
        is_open=bool(in_thought),
        budget=thinking_options.budget,
        tokenizer=model.tokenizer,
        width=(model.engine.vocab_size + 7) // 8,
    )
