"""The table of error codes has every code of the source, with the statuses that clients receive, and no other."""

import ast
import importlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adapters import errors, statuses
from adapters.errors import InferenceError
from gateway.process.commands import app
from gateway.process.error_codes import CODES, GROUPS
from gateway.process.errors_cli import page

REFUSALS = {
    "AdminRefused",
    "DraftRefused",
    "HeadRefused",
    "NotDone",
    "_refused",
    "_refuse",
    "openai_refusal",
    "refusal",
}
"""Calls with a status and a code as their first arguments."""
FOREIGN = {"headrace-no-such-model"}
"""The name of a model that a conformance suite asks for."""
ONLY_BY_NAME = {
    "answer_rejected", "reply_topic_refused", "answer_unroutable",  # of dead letters
    "no_such_rollout", "no_such_experiment",  # made of the kind
    "batches_disabled", "files_disabled",  # attributes of the front
    "app_redirect", "upgrade_required", "queue_timeout", "thread_unsupported_request",
}  # fmt: skip
"""Codes that no call of the source has as a constant beside its class."""


def literals(node: ast.expr, constants: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from literals(node.body, constants)
        yield from literals(node.orelse, constants)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Name) and node.id in constants:
        yield constants[node.id]


def constants_of(tree: ast.Module) -> dict[str, str]:
    """The texts that a module assigns to names, also those that it imports from `adapters.errors`."""
    named = {name: value for name, value in vars(errors).items() if isinstance(value, str) and name.isupper()}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=True))
                named |= {
                    name.id: value.value
                    for name, value in pairs
                    if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str)
                }
    return named


def status_of(kind: type[InferenceError], code: str) -> int:
    error = kind.__new__(kind)
    error.code = code
    return statuses.http_status(error)


def codes_of_source() -> dict[str, set[int]]:
    """Each code of the source with its statuses, as far as a call or a class shows them."""
    present: dict[str, set[int]] = defaultdict(set)
    for path in [*Path("adapters").rglob("*.py"), *Path("gateway").rglob("*.py")]:
        tree = ast.parse(path.read_text())
        constants = constants_of(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                for code, status in codes_of_call(node, constants):
                    present[code] |= status
    for kind in kinds(InferenceError):
        if kind.__module__.split(".")[0] in ("adapters", "gateway"):
            present[kind.code].add(status_of(kind, kind.code))
    return {code: present[code] for code in present if code not in FOREIGN and " " not in code}


def codes_of_call(call: ast.Call, constants: dict[str, str]) -> Iterator[tuple[str, set[int]]]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in REFUSALS and len(call.args) > 1 and isinstance(call.args[0], ast.Constant):
        status = call.args[0].value
        if isinstance(status, int):
            yield from ((code, {status}) for code in literals(call.args[1], constants) if code.isidentifier())
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, InferenceError):
        for keyword in call.keywords:
            if keyword.arg == "code":
                yield from ((code, {status_of(kind, code)}) for code in literals(keyword.value, constants))


def kinds(base: type[InferenceError]) -> Iterator[type[InferenceError]]:
    yield base
    for kind in base.__subclasses__():
        yield from kinds(kind)


def test_the_table_has_every_code_of_the_source_with_its_statuses() -> None:
    for name in ("adapters.upstreams.apps.calls", "gateway.limits.mutexes", "gateway.features.bus.running"):
        importlib.import_module(name)  # classes of errors outside `adapters.errors`
    source = codes_of_source()
    assert len(source) > 100
    assert sorted(source.keys() - CODES.keys()) == [], "add these to gateway/process/error_codes.py"
    assert sorted(CODES.keys() - source.keys() - ONLY_BY_NAME) == [], "no code of the product is named so"
    written = {code: set(CODES[code].statuses) for code in source}
    assert {code: status for code, status in source.items() if written[code] != status} == {}


def test_no_code_stands_twice() -> None:
    assert sum(map(len, GROUPS.values())) == len(CODES)


@pytest.mark.parametrize("name", sorted(CODES))
def test_every_code_has_a_cause_and_an_action(name: str) -> None:
    entry = CODES[name]
    assert entry.cause.endswith(".")
    assert entry.action.endswith(".")


def test_the_page_is_up_to_date() -> None:
    written = Path("docs/errors.md").read_text()
    assert written == page() + "\n", "run: python -m gateway.process.errors_cli > docs/errors.md"


def test_the_command_explains_a_code_and_proposes_a_near_one() -> None:
    shown = CliRunner().invoke(app, ["errors", "queue_timeout"])
    assert shown.exit_code == 0
    assert shown.stdout == f"queue_timeout  503  {CODES['queue_timeout'].cause}\n  {CODES['queue_timeout'].action}\n"
    assert shown.stdout in page()
    wrong = CliRunner().invoke(app, ["errors", "queue_timout"])
    assert (wrong.exit_code, "did you mean queue_timeout?" in wrong.stderr) == (2, True)
    everything = CliRunner().invoke(app, ["errors"]).stdout
    assert all(f"\n{name}  " in f"\n{everything}" for name in CODES)
