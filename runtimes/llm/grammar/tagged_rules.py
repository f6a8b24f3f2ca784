"""The grammar of one call between tags (text/tagged_call.py), as llguidance's Lark.

Arguments come in the schema's order, and those that are not required may be missing. A text is free up to its closing
tag, unless the schema lists the texts; every other value is JSON of its schema.
"""

import json
from collections.abc import Mapping
from typing import Any

from runtimes.llm.grammar.json_schema import json_text
from runtimes.llm.text.tagged_call import CLOSES, OPENS, is_text

_DEFINITIONS = ("$defs", "definitions")
_END = "\n</parameter>\n"


def tagged_rules(rule: str, name: str, schema: Mapping[str, Any], *, strict: bool) -> list[str]:
    """The rule of a call of the function `name`, whose arguments are of this `schema`. Raises GrammarInvalid."""
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    required = set(required) if isinstance(required, list) else set()
    parts, rules = [], []
    for at, (key, own) in enumerate(properties.items()):
        part = f"{rule}_{at}"
        parts.append(part if key in required else f"{part}?")
        rules += _argument(part, key, own if isinstance(own, dict) else {}, schema, strict)
    if not properties and schema.get("additionalProperties", True) is not False and not strict:
        parts.append(f"{rule}_any*")
        key = r'"<parameter=" /[^>\n\r]+/ ">\n"'
        rules += [f"{rule}_any: {key} {rule}_text", _free(f"{rule}_text")]
    return [f"{rule}: {_quoted(f'{OPENS}{name}>')} {_quoted(chr(10))} {' '.join(parts)} {_quoted(CLOSES)}", *rules]


def _argument(part: str, key: str, own: dict[str, Any], schema: Mapping[str, Any], strict: bool) -> list[str]:
    head = f"{part}: {_quoted(f'<parameter={key}>')} {_quoted(chr(10))}"
    listed = [own["const"]] if "const" in own else own.get("enum")
    if is_text(own, schema) is not False:
        if isinstance(listed, list) and listed and all(isinstance(one, str) for one in listed):
            return [f"{head} ({' | '.join(map(_quoted, listed))}) {_quoted(_END)}"]
        return [f"{head} {part}_text", _free(f"{part}_text")]
    definitions = {name: schema[name] for name in _DEFINITIONS if name in schema}
    return [f"{head} %json {json_text({**definitions, **own}, 'tools', strict=strict)} {_quoted(_END)}"]


def _free(rule: str) -> str:
    return f"{rule}[suffix={_quoted(_END)}]: /(?s:.*)/"


def _quoted(text: str) -> str:
    return json.dumps(text)
