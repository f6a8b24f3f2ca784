"""Loads the resources of a configuration's nodes, before the configuration is in force."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from config.installing import installing
from config.place import Place, written
from config.problem import closest
from config.schema.config import Config
from config.schema.pipelines.pipeline import NodeConfig, StepConfig
from gateway.features.pipelines.build import LEAVES, compile_leaf
from gateway.traffic.fleet.member import FleetError


class _PlacedNode(NamedTuple):
    """A node, its place in the file, and the names of its inputs; None if it receives the unchanged request."""

    node: NodeConfig
    place: Place
    inputs: frozenset[str] | None


def prepare(config: Config) -> None:
    """Load the resources of all nodes, once. Raises `FleetError`. Blocks: call it in a thread."""
    check(config)
    for placed in _all_nodes(config):
        for kind, _ in placed.node.placed_leaves():
            if kind in LEAVES:
                with _reported(config, (*placed.place, kind), kind):
                    _load(placed.node)
        if placed.node.agree is not None and placed.node.agree.by == "edit":
            with _reported(config, (*placed.place, "agree"), "`by: edit`"):
                import rapidfuzz.distance  # noqa: F401 - an extra


def _load(node: NodeConfig) -> None:
    """Compile a node, so that compiling it again when the configuration takes effect cannot fail."""
    for section in (node.tokenize, node.detokenize):
        if section is not None and section.tokenizer is not None:
            from gateway.features.pipelines.tokens import load

            load(section.tokenizer)
    compile_leaf(node)


def check(config: Config) -> None:
    """Compile the templates of all pipelines. Raises `FleetError` with the line of a mistake."""
    for placed in _all_nodes(config):
        for place, source, inputs in _templates(placed):
            with _reported(config, place, "a template"):
                _check(source, inputs)


@contextmanager
def _reported(config: Config, place: Place, part: str) -> Iterator[None]:
    """Raise a failure of a part of the file as a `FleetError` with its line."""
    line = 1
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"{part} needs {error.name}, which an extra has: {installing('pipelines')}"
    except _MistakeError as error:
        message, line = str(error), error.line
    except ValueError as error:
        message = str(error)
    else:
        return
    raise InvalidNode(config.line_at(place, line), written(place), message)


class InvalidNode(FleetError):
    """A node that cannot work, with its line and its place in the file."""

    def __init__(self, line: int | None, path: str, message: str) -> None:
        super().__init__(f"{'' if line is None else f'line {line}: '}{path}: {message}")
        self.line = line
        self.path = path
        self.message = message


class _MistakeError(Exception):
    """A mistake in a template, and its line in the text."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def _all_nodes(config: Config) -> Iterator[_PlacedNode]:
    for index, model in enumerate(config.models):
        if model.pipeline is not None:
            yield from _nodes(_PlacedNode(model.pipeline, ("models", index, "pipeline"), None))


def _nodes(placed: _PlacedNode) -> Iterator[_PlacedNode]:
    yield placed
    for inside, inner in placed.node.placed_nodes():
        inputs = frozenset(inner.inputs) if isinstance(inner, StepConfig) else frozenset()
        yield from _nodes(_PlacedNode(inner, (*placed.place, *inside), inputs or placed.inputs))


def _templates(placed: _PlacedNode) -> Iterator[tuple[Place, str, frozenset[str] | None]]:
    """The templates of a node: the place and the text of each, and the variables that it may read."""
    template, judge = placed.node.template, placed.node.judge
    if template is not None and template.text is not None:
        yield (*placed.place, "template", "text"), template.text, placed.inputs
    for index, message in enumerate(template.messages if template is not None else ()):
        yield (*placed.place, "template", "messages", index, "content"), message.content, placed.inputs
    if judge is not None:
        read = frozenset(("question", "a", "b"))
        yield (*placed.place, "judge", "prompt"), judge.prompt or "{{ question }}", read


def _check(source: str, inputs: frozenset[str] | None) -> None:
    """Compile a template. Raises `_MistakeError`."""
    from adapters.wire.text.step_template import TemplateInvalid  # needs an extra
    from gateway.features.pipelines.template import compiled

    try:
        read = compiled(source).variables
    except TemplateInvalid as error:
        raise _MistakeError(str(error), error.line) from None
    if inputs is not None and (unknown := sorted(read - inputs)):
        line = next((at for at, text in enumerate(source.splitlines(), 1) if unknown[0] in text), 1)
        hint = closest(unknown[0], inputs)
        suggestion = f' (did you mean "{hint}"?)' if hint is not None else ""
        shown = ", ".join(sorted(inputs))
        raise _MistakeError(f"the template reads `{unknown[0]}`, and the inputs are {shown}{suggestion}", line)
