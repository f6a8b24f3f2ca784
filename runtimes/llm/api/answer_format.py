"""The structure of an answer: OpenAI's `response_format` and vLLM's `structured_outputs`.

Both become one Grammar. A complete answer matches it; one that is cut by its length, by a stop string or
by a stop token is cut there.
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from adapters.errors import CallerError
from runtimes.llm.grammar.constraint import Grammar
from runtimes.llm.grammar.json_schema import WHITESPACE, of_schema

MAX_CHOICES = 10_000
_SIMPLE = ("json", "json_object", "regex", "choice", "grammar")
Options = Annotated[list[str], Meta(min_length=1, max_length=MAX_CHOICES)]
_CLASSES = {
    "d": "[0-9]", "w": "[0-9A-Za-z_]", "s": r"[\t\n\v\f\r ]",
    "D": "[^0-9]", "W": "[^0-9A-Za-z_]", "S": r"[^\t\n\v\f\r ]",
}  # fmt: skip
_encode = msgspec.json.Encoder().encode


class JsonSchema(msgspec.Struct, forbid_unknown_fields=True):
    """With `strict` a schema with a keyword that cannot be enforced is refused; otherwise that keyword is skipped."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True):
    """OpenAI's `response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def grammar(self) -> Grammar | None:
        """The grammar. Raises CallerError."""
        if (self.json_schema is not None) != (self.type == "json_schema"):
            message = "`response_format.json_schema` belongs to type json_schema, which must have it."
            raise CallerError(message, param="response_format.json_schema")
        if self.type == "json_object":
            return of_schema({"type": "object"}, "response_format")
        if self.json_schema is None:
            return None
        strict = bool(self.json_schema.strict)
        return of_schema(self.json_schema.schema, "response_format.json_schema.schema", strict=strict)


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True):
    """vLLM's field: exactly one of the first five is set. Every keyword of a `json` schema is enforced."""

    json: dict[str, Any] | str | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: Options | None = None
    grammar: str | None = None
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool | None = None

    @property
    def given(self) -> list[str]:
        """The names of the first five fields that are set."""
        return [name for name in _SIMPLE if getattr(self, name) not in (None, False)]

    def to_grammar(self, prefix: str = "structured_outputs.") -> Grammar:
        """The grammar. `prefix` precedes the fields' names in errors. Raises CallerError."""
        if len(given := self.given) != 1:
            names = ", ".join(f"`{prefix}{name}`" for name in given or _SIMPLE)
            param = prefix[:-1] if prefix.endswith(".") else f"{prefix}{(given or _SIMPLE)[0]}"
            raise CallerError(f"Give one of {names}, not {len(given)}.", param=param)
        param = f"{prefix}{given[0]}"
        if self.regex is not None:
            return Grammar("regex", ascii_classes(self.regex), param)
        if self.grammar is not None:
            return Grammar("grammar", self.grammar, param)
        if self.choice is not None:
            return Grammar("choice", _encode(self.choice).decode(), param)
        schema = {"type": "object"} if self.json is None else _schema(self.json, param)
        whitespace = "" if self.disable_any_whitespace else ascii_classes(self.whitespace_pattern or WHITESPACE)
        return of_schema(schema, param, strict=True, whitespace=whitespace)


def ascii_classes(regex: str) -> str:
    r"""The regex with `\d`, `\w` and `\s` as ASCII, as vLLM reads them. llguidance's are Unicode's."""
    return re.sub(r"\\(.)", lambda escape: _CLASSES.get(escape[1], escape[0]), regex, flags=re.DOTALL)


def _schema(written: dict[str, Any] | str, param: str) -> dict[str, Any]:
    if isinstance(written, dict):
        return written
    try:
        return msgspec.json.decode(written, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise CallerError(f"`{param}` is not a JSON object: {error}.", param=param) from None
