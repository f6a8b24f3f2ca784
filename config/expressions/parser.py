"""Parses tokens into a syntax tree.

conditional = disjunction [ "if" disjunction "else" conditional ]
disjunction = conjunction { "or" conjunction }
conjunction = negation { "and" negation }
negation    = "not" negation | comparison
comparison  = sum [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not" "in" ) sum ]
sum         = product { ( "+" | "-" ) product }
product     = unary { ( "*" | "/" ) unary }
unary       = "-" unary | defaulted
defaulted   = postfix [ "default" ( "-" postfix | postfix ) ]
postfix     = primary { "[" conditional "]" | "." name }
primary     = number | text | "true" | "false" | name [ "(" arguments ")" ] | "[" items "]" | "(" conditional ")"
"""

from collections.abc import Callable

from config.expressions.errors import CompileError
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
from config.expressions.tokens import Lexeme, tokenize

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
