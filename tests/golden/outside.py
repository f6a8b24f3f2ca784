"""Renders what users, operators and machines see of the gateway, in a form that is easy to compare."""

import ast
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import typer
from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from adapters import statuses
from adapters.errors import InferenceError
from adapters.http1.message import Response
from config.jsonschema import json_schema
from gateway.fronts import errors
from gateway.fronts.rights import ADMIN, CLIENT, GRPC
from gateway.process.commands import app
from tests.support.table_groups import every_group

FILES = Path(__file__).parent / "files"
METRICS = ("CounterMetricFamily", "GaugeMetricFamily", "HistogramMetricFamily", "InfoMetricFamily")


def _lines(lines: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def schema() -> str:
    """What the configuration file may have: the leaves of its JSON Schema, one a line, without descriptions."""
    return _lines(iter(sorted(_leaves(json_schema(), ""))))


def _leaves(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in ("description", "title") or place.endswith(" properties"):
                yield from _leaves(inner, f"{place} {name}")
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{place} {index}")
    else:
        yield f"{place.strip()}: {json.dumps(value)}"


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────


def commands() -> str:
    """Each command with its arguments, options, defaults and help."""
    return _lines(_command("headrace", typer.main.get_command(app)))


def _command(path: str, command: Any) -> Iterator[str]:
    yield f"{path}: {' '.join((command.help or '').split())}"
    for parameter in command.params:
        names = ", ".join((*parameter.opts, *parameter.secondary_opts))
        text = " ".join((getattr(parameter, "help", None) or "").split())
        yield f"  {names}{' (required)' if parameter.required else ''} [{parameter.default}] {text}"
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from _command(f"{path} {name}", inner)


# ── metrics ───────────────────────────────────────────────────────────────────────────────────────────


def metrics() -> str:
    """Name, type and labels of each metric that a module of the gateway can report."""
    return _lines(iter(sorted({line for tree, names in _modules() for line in _families(tree, names)})))


def _modules() -> Iterator[tuple[ast.Module, dict[str, Any]]]:
    for path in sorted(Path("gateway").rglob("*.py")):
        text = path.read_text()
        if "MetricFamily" in text:
            module = importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
            yield ast.parse(text), vars(module)


def _families(tree: ast.Module, names: dict[str, Any]) -> Iterator[str]:
    local = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
    constants = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value) for node in local if _is_constant(node.value)
    }
    names = {**constants, **names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in METRICS and node.args:
            labels = next((each.value for each in node.keywords if each.arg == "labels"), None)
            yield f"{_value(node.args[0], names)} {node.func.id[:-12].lower()} {_labels(labels, names)}"


def _is_constant(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def _labels(node: ast.expr | None, names: dict[str, Any]) -> str:
    labels = () if node is None else _value(node, names)
    return labels if isinstance(labels, str) else ",".join(labels) or "-"


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    """The value of an expression of constants; its code if it depends on a variable."""
    try:
        return eval(compile(ast.Expression(node), "", "eval"), dict(names))
    except NameError:
        return ast.unparse(node)


# ── routes ────────────────────────────────────────────────────────────────────────────────────────────


def routes() -> str:
    """The routes of every listener, with who may call them and what they count against."""
    clients = (f"{'|'.join(right.methods)} {path} {right.operation} {right.counts}" for path, right in CLIENT.items())
    methods = (f"gRPC {path} {operation}" for path, operation in GRPC.items())
    admins = (f"admin {path} {' '.join(map(str, right))}" for path, right in ADMIN.items())
    return _lines(iter(sorted((*clients, *methods, *admins))))


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────


def failures() -> str:
    """Status, headers and body of each class of errors at each front, and its gRPC status."""
    return _lines(line for kind in _classes(InferenceError) for line in _failure(kind))


def _classes(base: type[InferenceError]) -> Iterator[type[InferenceError]]:
    yield base
    for kind in sorted(base.__subclasses__(), key=lambda kind: kind.__name__):
        if kind.__module__ == "adapters.errors":
            yield from _classes(kind)


def _failure(kind: type[InferenceError]) -> Iterator[str]:
    error = kind.__new__(kind)
    InferenceError.__init__(error, "Why.", param="field", retry_after=2.5)
    code = statuses.grpc_code(error)
    yield f"{kind.__name__}: {kind.kind}, {error.code}, gRPC {code.name}, {_traits(kind)}"
    for front in (errors.openai_response, errors.anthropic_response, errors.oip_response, errors.app_response):
        response: Response = front(error, [])
        fields = "; ".join(f"{name}: {value}" for name, value in response.headers)
        yield f"  {front.__name__.removesuffix('_response')} {response.status} {fields}"
        yield f"    {cast(bytes, response.body).decode()}"


def _traits(kind: type[InferenceError]) -> str:
    traits = ("blames_endpoint", "retryable", "elsewhere_only")
    return " ".join(trait for trait in traits if getattr(kind, trait)) or "-"


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────


def tables() -> str:
    """The tables of the state database, as SQLite and Postgres create them."""
    by_name = {table.name: table for group in every_group() for table in group.metadata.tables.values()}
    return _lines(line for name in sorted(by_name) for line in _created(by_name[name]))


def _created(table: Table) -> Iterator[str]:
    for dialect in (sqlite.dialect(), postgresql.dialect()):  # type: ignore[no-untyped-call]
        statements: tuple[Any, ...] = (
            CreateTable(table),
            *(CreateIndex(each) for each in sorted(table.indexes, key=str)),
        )
        for statement in statements:
            yield f"{dialect.name}: {' '.join(str(statement.compile(dialect=dialect)).split())}"


OUTSIDE: dict[str, Callable[[], str]] = {
    "schema.txt": schema,
    "commands.txt": commands,
    "metrics.txt": metrics,
    "routes.txt": routes,
    "errors.txt": failures,
    "tables.txt": tables,
}
