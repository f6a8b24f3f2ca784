"""Tools of a chat, a template that knows them, and the check of their calls."""

import json
from typing import Any

import jsonschema

from tests.support.byte_tokenizer import CHATML

KNOWING = "{% if tools %}<tools>{{ tools | tojson | length }}</tools> <tool_call>{% endif %}" + CHATML
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 6}, "days": {"enum": [1, 2]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Of a city.", "parameters": PARAMETERS}}
OTHER = {"type": "function", "function": {"name": "now"}}
USER = {"role": "user", "content": "hi"}
CHAT: dict[str, Any] = {"model": "parrot", "messages": [USER], "tools": [TOOL, OTHER]}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'


def check_calls(calls: list[dict[str, Any]]) -> None:
    for call in calls:
        assert call["type"] == "function"
        assert call["id"].startswith("call_")
        schema = PARAMETERS if call["function"]["name"] == "get_weather" else {"maxProperties": 0, "type": "object"}
        jsonschema.validate(json.loads(call["function"]["arguments"]), schema)
