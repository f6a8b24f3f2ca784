"""Tools for models whose chat template knows none: told in the conversation itself, as Hermes models were taught
(https://github.com/NousResearch/Hermes-Function-Calling)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_TOLD = """You may call functions to help with the user's request. They are given within <tools></tools>:
<tools>
{tools}
</tools>

For each call write a JSON object with the function's name and its arguments within <tool_call></tool_call>:
<tool_call>
{{"name": "function-name", "arguments": {{"argument-name": "value"}}}}
</tool_call>"""


def in_words(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the tools told in the system's, calls in the assistant's text, and results in the user's."""
    said: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            _add_result(said, message["content"])
        elif calls := message.get("tool_calls"):
            said.append({"role": "assistant", "content": _calls(message["content"], calls)})
        else:
            said.append(dict(message))
    return _told(said, tools) if tools else said


def _told(messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    told = _TOLD.format(tools="\n".join([json.dumps(tool, ensure_ascii=False) for tool in tools]))
    if not messages or messages[0]["role"] != "system":
        return [{"role": "system", "content": told}, *messages]
    return [messages[0] | {"content": f"{messages[0]['content']}\n\n{told}"}, *messages[1:]]


def _calls(text: str, calls: Sequence[Mapping[str, Any]]) -> str:
    written = [f"<tool_call>\n{json.dumps(call['function'], ensure_ascii=False)}\n</tool_call>" for call in calls]
    return "\n".join([text, *written] if text else written)


def _add_result(said: list[dict[str, Any]], result: str) -> None:
    """Results of one turn are one message: templates want user and assistant to take turns."""
    written = f"<tool_response>\n{result}\n</tool_response>"
    if said and said[-1].get("results"):
        said[-1]["content"] += f"\n{written}"
    else:
        said.append({"role": "user", "content": written, "results": True})
