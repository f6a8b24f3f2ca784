"""A chat's fields as one server spells them: renamed, in its words, and without what it lacks.

A field that a server lacks is left out and reported, or refused by its name if the answer would be another one.
"""

import re
from collections.abc import Mapping

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields, requests_nothing
from adapters.requests import ChatRequest
from adapters.types import Feature
from adapters.wire.decoding import MALFORMED_JSON
from adapters.wire.openai.dialects import OpenAIDialect

Fields = Mapping[str, Raw]

_NULL = Raw(b"null")
_REQUIRED = Raw(b'"required"')
_ESSENTIAL = frozenset({"stop", "tool_choice"})
"""Fields that change the answer, beside those of `ignored_fields.CHANGED`."""
_OF_FEATURES: Mapping[Feature, tuple[str, str]] = {
    "tools": ("tools", "its provider calls no tools of clients"),
    "json_schema": ("response_format", "its provider follows no JSON schema: use `json_object` and describe the form"),
    "vision": ("messages", "its provider reads no images"),
}
"""The field of each feature, and the reason of a refusal."""


class _Named(msgspec.Struct):
    name: str


class _Choice(msgspec.Struct):
    function: _Named


class _Tool(msgspec.Struct):
    function: _Named


_encode = msgspec.json.Encoder().encode
_choice = msgspec.json.Decoder(_Choice).decode
_tools = msgspec.json.Decoder(list[Raw]).decode
_tool = msgspec.json.Decoder(_Tool).decode


def spelled(
    fields: Fields, request: ChatRequest, dialect: OpenAIDialect, model: str, ignored: IgnoredFields
) -> dict[str, Raw]:
    """The fields of a chat for a server. Raises `CallerError` that names a field which the server lacks."""
    for feature in dialect.without:
        if request.uses_feature(feature):
            raise _lacking(*_OF_FEATURES[feature])
    spelling = dict(fields)
    for names, models in dialect.lacks:
        if not names.isdisjoint(spelling) and re.search(models, model):
            _leave_out(spelling, names, ignored)
    for name, words in dialect.words.items():
        if (value := spelling.get(name)) is not None and bytes(value) in words:
            word = words[bytes(value)]
            spelling = {other: raw for other, raw in spelling.items() if other != name}
            if word is not None:
                spelling[name] = word
    if not dialect.names_tools and bytes(spelling.get("tool_choice", _NULL))[:1] == b"{":
        _only_the_named(spelling)
    return renamed(spelling, dialect.renames) if dialect.renames else spelling


def renamed(fields: Fields, renames: Mapping[str, str]) -> dict[str, Raw]:
    """Rename fields for a server. A field that exists under the new name takes precedence."""
    spelling = dict(fields)
    for name, new_name in renames.items():
        if (value := spelling.pop(name, None)) is not None and value != _NULL:
            spelling.setdefault(new_name, value)
    return spelling


def _leave_out(fields: dict[str, Raw], names: frozenset[str], ignored: IgnoredFields) -> None:
    lacking = {name: fields.pop(name) for name in names & fields.keys()}
    for name in sorted(_ESSENTIAL & lacking.keys()):
        if not requests_nothing(name, lacking[name]) and lacking[name] not in (Raw(b'"auto"'), Raw(b'"none"')):
            raise _lacking(name, "its provider has no such field")
    ignored.sift(dict(sorted(lacking.items())), _ESSENTIAL)


def _only_the_named(fields: dict[str, Raw]) -> None:
    """Leave only the tool that the choice names, and demand a call. Malformed tools are left to the server."""
    try:
        name = _choice(fields["tool_choice"]).function.name
        named = [raw for raw in _tools(fields.get("tools", _NULL)) if _tool(raw).function.name == name]
    except MALFORMED_JSON:
        return
    if not named:
        raise CallerError(f"`tool_choice` names {name[:64]}, which `tools` does not have.", param="tool_choice")
    fields["tools"], fields["tool_choice"] = Raw(_encode(named)), _REQUIRED


def _lacking(name: str, why: str) -> CallerError:
    return CallerError(f"`{name}` is not possible with this model: {why}.", param=name, code="unsupported_parameter")
