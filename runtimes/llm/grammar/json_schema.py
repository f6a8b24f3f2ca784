"""JSON schemas as grammars: the text that llguidance compiles, with its options."""

from typing import Any

import msgspec

from runtimes.llm.grammar.constraint import Grammar, GrammarInvalid
from runtimes.llm.grammar.schema_numbers import Rounded, exact

# Between JSON's tokens: nothing, a space, or a new line with what it is indented by. Without a bound a model can go
# on with spaces until its answer is cut.
WHITESPACE = r"[ \t]?|\n[ \t]{0,40}"
_encode = msgspec.json.Encoder().encode


def of_schema(schema: dict[str, Any], param: str, *, strict: bool = False, whitespace: str = WHITESPACE) -> Grammar:
    """The JSON texts of a schema."""
    return Grammar("json_schema", json_text(schema, param, strict=strict, whitespace=whitespace), param)


def json_text(schema: dict[str, Any], param: str, *, strict: bool, whitespace: str = WHITESPACE) -> str:
    """A schema with how it is to be read, as `%json` in Lark takes it too. Raises GrammarInvalid."""
    try:
        schema = exact(schema, strict=strict)
    except Rounded as error:
        raise GrammarInvalid(f"`{param}` cannot be enforced: {error}.", param=param) from None
    reading: dict[str, Any] = {"lenient": not strict}
    reading |= {"whitespace_pattern": whitespace} if whitespace else {"whitespace_flexible": False}
    return _encode({**schema, "x-guidance": reading}).decode()
