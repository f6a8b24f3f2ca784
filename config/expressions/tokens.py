"""Splits the text of an expression into tokens."""

import re
from typing import NamedTuple

from config.expressions.errors import CompileError
from config.expressions.types import MAX_INT

MAX_CHARACTERS = 4096
KEYWORDS = frozenset({"and", "or", "not", "in", "if", "else", "default", "true", "false"})
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_INSTEAD = {"&": "and", "|": "or", "!": "not", "=": "==", "&&": "and", "||": "or"}
"""Signs of other languages, with the words to write instead."""
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<number>[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<sign>==|!=|<=|>=|[<>+\-*/()\[\].,])
      | (?P<foreign>&&|\|\||[&|!=])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


class Lexeme(NamedTuple):
    """A token: its kind (`number`, `text`, `name`, `word` for a keyword, `sign`, `end`), its text and its column."""

    kind: str
    text: str
    column: int
    value: int | float | str = ""


def tokenize(source: str) -> list[Lexeme]:
    """The tokens of an expression, then an `end`. Raises `CompileError`."""
    if len(source) > MAX_CHARACTERS:
        raise CompileError(f"an expression has at most {MAX_CHARACTERS} characters, not {len(source)}", MAX_CHARACTERS)
    tokens, at = [], 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            raise _unexpected(source, at)
        token = _lexeme(str(match.lastgroup), match[0], at + 1)
        if token is not None:
            tokens.append(token)
        at = match.end()
    return [*tokens, Lexeme("end", "", len(source) + 1)]


def _lexeme(kind: str, text: str, column: int) -> Lexeme | None:
    if kind == "space":
        return None
    if kind == "foreign":
        raise CompileError(f"`{text}` is not an operator", column, _INSTEAD[text])
    if kind == "number":
        return Lexeme(kind, text, column, _number(text, column))
    if kind == "text":
        return Lexeme(kind, text, column, _unescaped(text[1:-1], column + 1))
    return Lexeme("word" if text in KEYWORDS else kind, text, column)


def _number(text: str, column: int) -> int | float:
    if text.endswith("_") or "__" in text:
        raise CompileError(f"`{text}` is not a number", column)
    if text.replace("_", "").isdigit():
        if len(text) > 40 or (value := int(text)) > MAX_INT:
            raise CompileError("an integer has at most 64 bits; write it with a decimal point", column)
        return value
    return float(text)


def _unescaped(text: str, column: int) -> str:
    def replaced(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape not in _ESCAPES:
            message = f"`\\{escape}` is not an escape; a backslash is written twice"
            raise CompileError(message, column + match.start())
        return _ESCAPES[escape]

    return _ESCAPE.sub(replaced, text)


def _unexpected(source: str, at: int) -> CompileError:
    sign = source[at]
    if sign in "\"'":
        return CompileError("this text has no closing quote", at + 1)
    return CompileError(f"unexpected character {sign!a}", at + 1)
