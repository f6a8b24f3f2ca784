"""What a request says its answer must be like: OpenAI's `response_format` and vLLM's `structured_outputs`.

Both become one Grammar. An answer that ends by itself follows it; one that is cut by its length, by a stop string or
by a stop token is cut there.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from adapters.errors import CallerError
from runtimes.llm.grammar import Grammar

# Between JSON's tokens: nothing, a space, or a new line with what it is indented by. Without a bound a model can go
# on with spaces until its answer is cut.
WHITESPACE = r"[ \t]?|\n[ \t]{0,40}"
MAX_CHOICES = 10_000
_SIMPLE = ("json", "json_object", "regex", "choice", "grammar")
_encode = msgspec.json.Encoder().encode


class JsonSchema(msgspec.Struct, forbid_unknown_fields=True):
    """With `strict` a schema with a keyword that cannot be held to is refused; without, that keyword is passed over."""

    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True):
    """OpenAI's."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def grammar(self) -> Grammar | None:
        """Raises CallerError."""
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
    """vLLM's: exactly one of the first five. A `json` schema is held to in all that it says."""

    json: dict[str, Any] | str | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: Annotated[list[str], Meta(min_length=1, max_length=MAX_CHOICES)] | None = None
    grammar: str | None = None
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool | None = None

    def told(self) -> Grammar:
        """Raises CallerError."""
        asked = [name for name in _SIMPLE if getattr(self, name) not in (None, False)]
        if len(asked) != 1:
            message = f"`structured_outputs` takes one of {', '.join(_SIMPLE)}, not {len(asked)} of them."
            raise CallerError(message, param="structured_outputs")
        param = f"structured_outputs.{asked[0]}"
        if self.regex is not None:
            return Grammar("regex", self.regex, param)
        if self.grammar is not None:
            return Grammar("grammar", self.grammar, param)
        if self.choice is not None:
            return Grammar("choice", _encode(self.choice).decode(), param)
        schema = {"type": "object"} if self.json is None else _schema(self.json, param)
        whitespace = "" if self.disable_any_whitespace else self.whitespace_pattern or WHITESPACE
        return of_schema(schema, param, strict=True, whitespace=whitespace)


def of_schema(schema: dict[str, Any], param: str, *, strict: bool = False, whitespace: str = WHITESPACE) -> Grammar:
    """The JSON texts of a schema."""
    return Grammar("json_schema", json_text(schema, strict=strict, whitespace=whitespace), param)


def json_text(schema: dict[str, Any], *, strict: bool, whitespace: str = WHITESPACE) -> str:
    """A schema with how it is to be read, as `%json` in Lark takes it too."""
    reading: dict[str, Any] = {"lenient": not strict}
    reading |= {"whitespace_pattern": whitespace} if whitespace else {"whitespace_flexible": False}
    return _encode({**schema, "x-guidance": reading}).decode()


def _schema(written: dict[str, Any] | str, param: str) -> dict[str, Any]:
    if isinstance(written, dict):
        return written
    try:
        return msgspec.json.decode(written, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise CallerError(f"`{param}` is not a JSON object: {error}.", param=param) from None
