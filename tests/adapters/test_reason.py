"""Every refusal has a reason, and every reason is of a refusal."""

import ast
from collections.abc import Iterator
from pathlib import Path

import gateway.limits.mutexes  # a class of errors of the gateway itself
from adapters import statuses
from adapters.errors import CredentialError, InferenceError
from adapters.reason import BY_CODE, CAPACITY, CAUSES, CREDENTIALS, LIMITS, MODELS, RIGHTS, reason

OF_STATUS = {401: CREDENTIALS, 403: RIGHTS, 404: MODELS, 429: {*LIMITS, "upstream_quota"}, 503: CAPACITY}
SOURCES = [path for room in ("adapters", "gateway") for path in sorted(Path(room).rglob("*.py"))]
TREES = {path: ast.parse(path.read_text()) for path in SOURCES}


def kinds(base: type[InferenceError] = InferenceError) -> Iterator[type[InferenceError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


PRODUCT = {kind.__name__: kind for kind in kinds() if kind.__module__.split(".")[0] in ("adapters", "gateway")}


def test_each_class_that_refuses_has_a_cause_of_its_status() -> None:
    assert gateway.limits.mutexes.LimitsUnavailable.__name__ in PRODUCT
    for kind in PRODUCT.values():
        error = kind.__new__(kind)
        InferenceError.__init__(error, "Why.")
        made, causes = error.reason_of_refusal, OF_STATUS.get(statuses.http_status(error))
        assert (made is None) if causes is None else (made is not None and made.cause in causes), kind


def test_each_code_of_a_refusal_has_a_cause_where_it_is_made_or_by_itself() -> None:
    """A code that is given to a class of refusals: its reason is given in the same function, or is that of the code."""
    without = []
    for path, tree in TREES.items():
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            reasoned = any(_method(node) in ("because", "note") for node in ast.walk(function))
            for node in ast.walk(function):
                kind = PRODUCT.get(_name(node))
                if kind is None or not kind.cause or not isinstance(node, ast.Call):
                    continue
                for code in (each.value for each in node.keywords if each.arg == "code"):
                    literal = code.value if isinstance(code, ast.Constant) else None
                    if not (reasoned or literal in BY_CODE or literal is None):
                        without.append((str(path), node.lineno, literal))
    assert not without


def test_each_refused_credential_has_its_cause_where_it_is_made() -> None:
    """Of these the class has none that is true: one message hides them all from clients."""
    for path, tree in TREES.items():
        makes = any(_name(node) == CredentialError.__name__ for node in ast.walk(tree))
        assert not makes or "because(" in path.read_text(), path


def test_each_cause_is_used_and_in_the_pages() -> None:
    used = "".join(path.read_text() for path in SOURCES if path.name != "reason.py") + "".join(BY_CODE.values())
    page = Path("docs/refusals.md").read_text()
    for cause, description in CAUSES.items():
        assert f'"{cause}"' in used or cause in BY_CODE.values(), cause
        assert f"| `{cause}` | {description} |" in page, cause


def test_texts_of_clients_are_cut_and_printable() -> None:
    made = reason("model_unknown", model="a\nb\x00" + "x" * 500, key=None, issuer="")
    assert made.describe() == {"cause": "model_unknown", "model": ("a?b?" + "x" * 500)[:128]}


def _name(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _method(node: ast.AST) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
