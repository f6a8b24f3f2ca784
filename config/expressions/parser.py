"""Text → tokens → syntax tree: the grammar. The names in an expression that is not compiled."""

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import NamedTuple

from config.expressions.nodes import (
    BinaryNode,
    ConditionalNode,
    DefaultNode,
    FunctionCallNode,
    IndexNode,
    ListNode,
    LiteralNode,
    LogicalNode,
    MemberNode,
    NameNode,
    Node,
    UnaryNode,
)
from config.expressions.types import MAX_INT, CompileError, Path

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


MAX_NODES = 512
MAX_DEPTH = 24
"""Nesting of parentheses, prefixes and conditionals."""
MAX_CHAIN = 64
"""Operators of one kind in a row, such as the terms of a sum."""
MAX_ITEMS = 256
"""Elements of a list, arguments of a function."""
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})


def parse(source: str) -> Node:
    """The syntax tree of an expression. Raises `CompileError`."""
    return _Parser(tokenize(source)).parse()


class _Parser:
    """Recursive descent over the tokens, with bounded depth."""

    def __init__(self, tokens: list[Lexeme]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        if len(tokens) > MAX_NODES:
            raise CompileError(f"an expression has at most {MAX_NODES} parts", tokens[MAX_NODES].column)

    def parse(self) -> Node:
        if self._token.kind == "end":
            raise CompileError("the expression is empty", 1)
        node = self._conditional()
        if self._token.kind != "end":
            raise self._unexpected("an operator or the end")
        return node

    @property
    def _token(self) -> Lexeme:
        return self._tokens[self._at]

    def _next(self) -> Lexeme:
        token = self._token
        self._at += 1
        return token

    def _accept(self, *texts: str) -> Lexeme | None:
        """The next token, if it is one of these keywords or signs."""
        token = self._token
        return self._next() if token.kind in ("word", "sign") and token.text in texts else None

    def _expect(self, text: str) -> Lexeme:
        token = self._accept(text)
        if token is None:
            raise self._unexpected(f"`{text}`")
        return token

    def _unexpected(self, expected: str) -> CompileError:
        token = self._token
        present = "the expression ends" if token.kind == "end" else f"`{token.text[:40]}` stands"
        return CompileError(f"{present} where {expected} is expected", token.column)

    def _nested(self, parse: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CompileError(f"the expression is nested more than {MAX_DEPTH} deep", self._token.column)
        node = parse()
        self._depth -= 1
        return node

    def _conditional(self) -> Node:
        return self._nested(self._choice)

    def _choice(self) -> Node:
        chosen = self._logical("or", lambda: self._logical("and", self._negation))
        sign = self._accept("if")
        if sign is None:
            return chosen
        condition = self._logical("or", lambda: self._logical("and", self._negation))
        self._expect("else")
        return ConditionalNode(sign.column, condition, chosen, self._conditional())

    def _logical(self, word: str, operand: Callable[[], Node]) -> Node:
        column = self._token.column
        operands = [operand()]
        while self._accept(word):
            operands.append(operand())
        return operands[0] if len(operands) == 1 else LogicalNode(column, word, tuple(operands))

    def _negation(self) -> Node:
        sign = self._accept("not")
        if sign is None:
            return self._comparison()
        return UnaryNode(sign.column, "not", self._nested(self._negation))

    def _comparison(self) -> Node:
        left = self._sum()
        sign = self._comparison_sign()
        if sign is None:
            return left
        node = BinaryNode(sign.column, sign.text, left, self._sum())
        again = self._comparison_sign()
        if again is not None:
            message = "comparisons cannot be chained: write `a < b and b < c`"
            raise CompileError(message, again.column)
        return node

    def _comparison_sign(self) -> Lexeme | None:
        token = self._token
        if token.kind == "word" and token.text == "not" and self._tokens[self._at + 1].text == "in":
            self._at += 2
            return token._replace(text="not in")
        return self._accept(*_COMPARISONS)

    def _sum(self) -> Node:
        return self._chain(("+", "-"), self._product)

    def _product(self) -> Node:
        return self._chain(("*", "/"), self._unary)

    def _chain(self, signs: tuple[str, ...], operand: Callable[[], Node]) -> Node:
        left = operand()
        for _ in range(MAX_CHAIN):
            sign = self._accept(*signs)
            if sign is None:
                return left
            left = BinaryNode(sign.column, sign.text, left, operand())
        raise CompileError(f"more than {MAX_CHAIN} terms stand in a row", self._token.column)

    def _unary(self) -> Node:
        sign = self._accept("-")
        if sign is None:
            return self._defaulted()
        return UnaryNode(sign.column, "-", self._nested(self._unary))

    def _defaulted(self) -> Node:
        operand = self._postfix()
        sign = self._accept("default")
        if sign is None:
            return operand
        minus = self._accept("-")
        fallback = self._postfix()
        return DefaultNode(sign.column, operand, UnaryNode(minus.column, "-", fallback) if minus else fallback)

    def _postfix(self) -> Node:
        node = self._primary()
        for _ in range(MAX_DEPTH):
            if bracket := self._accept("["):
                index = self._conditional()
                self._expect("]")
                node = _indexed(bracket.column, node, index)
            elif dot := self._accept("."):
                node = _member(dot.column, node, self._member_name())
            else:
                return node
        raise CompileError(f"more than {MAX_DEPTH} members stand in a row", self._token.column)

    def _member_name(self) -> str:
        token = self._token
        if token.kind not in ("name", "word"):
            raise self._unexpected("a name")
        return self._next().text

    def _primary(self) -> Node:
        token = self._token
        if token.kind in ("number", "text"):
            self._at += 1
            return LiteralNode(token.column, token.value)
        if self._accept("true", "false"):
            return LiteralNode(token.column, token.text == "true")
        if token.kind == "name":
            self._at += 1
            return self._name(token)
        if self._accept("("):
            node = self._conditional()
            self._expect(")")
            return node
        if self._accept("["):
            return ListNode(token.column, self._items("]"))
        if token.text == ".":
            raise CompileError("a number begins with a digit: write `0.5` instead of `.5`", token.column)
        raise self._unexpected("a value")

    def _name(self, token: Lexeme) -> Node:
        if self._accept("("):
            return FunctionCallNode(token.column, token.text, self._items(")"))
        return NameNode(token.column, (token.text,))

    def _items(self, end: str) -> tuple[Node, ...]:
        """Comma-separated nodes up to the closing sign."""
        if self._accept(end):
            return ()
        items = [self._conditional()]
        while self._accept(","):
            items.append(self._conditional())
        if len(items) > MAX_ITEMS:
            raise CompileError(f"a list has at most {MAX_ITEMS} elements", items[MAX_ITEMS].column)
        self._expect(end)
        return tuple(items)


def _member(column: int, base: Node, name: str) -> Node:
    if isinstance(base, NameNode):
        return NameNode(base.column, (*base.parts, name))
    return MemberNode(column, base, name)


def _indexed(column: int, base: Node, index: Node) -> Node:
    if isinstance(index, LiteralNode) and isinstance(index.value, str):
        return _member(column, base, index.value)
    return IndexNode(column, base, index)


def names(text: str) -> tuple[Path, ...]:
    """The dotted names of an expression, without duplicates; none if it is invalid."""
    try:
        return tuple(dict.fromkeys(_names(parse(text))))
    except CompileError:
        return ()


def _names(part: object) -> Iterator[Path]:
    if isinstance(part, NameNode):
        yield part.parts
    elif isinstance(part, tuple):
        for each in part:
            yield from _names(each)
    elif is_dataclass(part) and not isinstance(part, type):
        for each in fields(part):
            yield from _names(getattr(part, each.name))
