"""The syntax tree. `column` is the place of a node in the text, from 1."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LiteralNode:
    """A number, a text, true or false."""

    column: int
    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class NameNode:
    """A dotted name."""

    column: int
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListNode:
    """`[first, second]`."""

    column: int
    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class IndexNode:
    """`base[index]`."""

    column: int
    base: "Node"
    index: "Node"


@dataclass(frozen=True, slots=True)
class MemberNode:
    """`base.name`, where the base is not a name."""

    column: int
    base: "Node"
    name: str


@dataclass(frozen=True, slots=True)
class FunctionCallNode:
    """`name(first, second)`."""

    column: int
    name: str
    arguments: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class UnaryNode:
    """`-operand` or `not operand`."""

    column: int
    operator: str
    operand: "Node"


@dataclass(frozen=True, slots=True)
class BinaryNode:
    """`left operator right`: arithmetic, comparison, `in`."""

    column: int
    operator: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class LogicalNode:
    """Operands joined by `and`, or by `or`."""

    column: int
    operator: str
    operands: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class ConditionalNode:
    """`chosen if condition else other`."""

    column: int
    condition: "Node"
    chosen: "Node"
    other: "Node"


@dataclass(frozen=True, slots=True)
class DefaultNode:
    """`operand default fallback`."""

    column: int
    operand: "Node"
    fallback: "Node"


Node = (
    LiteralNode | NameNode | ListNode | IndexNode | MemberNode | FunctionCallNode
    | UnaryNode | BinaryNode | LogicalNode | ConditionalNode | DefaultNode
)  # fmt: skip
