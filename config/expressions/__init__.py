"""A typed expression language for the conditions and inputs of pipelines.

types.py            the types of values, the variables of an expression, arithmetic on single numbers, errors
parser.py           text → tokens → syntax tree: the grammar
nodes.py            the syntax tree
program.py          `compile_expression`: text → `Expression`, and its evaluation
checker.py          syntax tree → operand: names, literals, conditionals, defaults
operand.py          a checked part of an expression: its type and the function that computes it
conversions.py      an operand as another type
variables.py        variables, and elements of lists, tensors and JSON values
operators.py        arithmetic, comparison, membership, logic
functions.py        the functions, with those on texts and on elements of lists
reductions.py       functions that reduce a list or a tensor to one value
arrays.py           operators and functions on tensors, with numpy

Every expression is checked when it is compiled. There are no loops, no definitions and no access to Python's objects:
the work of one evaluation is at most linear in the size of its values for each part of the expression, and
`Evaluation.spend` bounds their sum.

**Missing values.** A reference to an optional variable, and to a member of a JSON value, needs `default`:
`request.user default "nobody"`. The default of a JSON value also determines its type: a value of another type is
replaced. Operations without a result for some values (an element beyond the end, the minimum of an empty list) may have
a default, and otherwise raise `ExpressionError`; `Expression.unchecked` lists them.

**Numbers.** Integers have 64 bits and saturate. Floats are doubles; elements of tensors are converted to doubles, or to
64-bit integers. Division always makes a double. A division by zero is infinite or NaN, and infinities compare as usual.
NaN is an error wherever a decision depends on it (comparison, `min`, `max`, `argmax`, `int`), because a guard that
compares NaN would otherwise let the text pass; `is_nan` tests for it.

**Tensors.** Comparison and arithmetic apply to each element. Where a single value is required, a tensor of one element
is that value; a tensor whose shape is known to have more is a compile error, and an unknown shape is checked at
evaluation.
"""

from config.expressions.program import Expression, compile_expression
from config.expressions.types import (
    BOOL,
    FLOAT,
    INT,
    JSON,
    MISSING,
    STRING,
    CompileError,
    ExpressionError,
    ListType,
    NumberType,
    StringType,
    TensorType,
    ValueType,
    Variable,
    Variables,
)

__all__ = [
    "BOOL",
    "FLOAT",
    "INT",
    "JSON",
    "MISSING",
    "STRING",
    "CompileError",
    "Expression",
    "ExpressionError",
    "ListType",
    "NumberType",
    "StringType",
    "TensorType",
    "ValueType",
    "Variable",
    "Variables",
    "compile_expression",
]
