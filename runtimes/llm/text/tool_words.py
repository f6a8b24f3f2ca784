"""Tools in words, for a template without tools: the format of the Hermes models
(https://github.com/NousResearch/Hermes-Function-Calling)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

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
            _add_result(result, joined(message["content"]))
        elif calls := message.get("tool_calls"):
            result.append({"role": "assistant", "content": _calls(joined(message["content"]), calls)})
        else:
            result.append(dict(message))
    return _with_tools(result, tools) if tools else result


def joined(content: str | Sequence[Mapping[str, Any]]) -> str:
    """The texts of a content as one."""
    return content if isinstance(content, str) else "\n".join([part["text"] for part in content if "text" in part])


def _with_tools(messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    prompt = _PROMPT.format(tools="\n".join([json.dumps(tool, ensure_ascii=False) for tool in tools]))
    if not messages or messages[0]["role"] != "system":
        return [{"role": "system", "content": prompt}, *messages]
    return [messages[0] | {"content": f"{joined(messages[0]['content'])}\n\n{prompt}"}, *messages[1:]]


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
