"""Checks of guards: their names exist and are used, and what they compare can be compiled."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from config.answer_schemas import faults_of
from config.checks.pipelines.walk import model_names, takes_tensors
from config.document import Document, Node, names
from config.expressions import BOOL, CompileError, compile_expression
from config.installing import installing
from config.patterns import EngineMissing, PatternError, compiled, longest_match
from config.problem import Problem, closest
from config.schema.guards import MOST_WORDS
from config.schema.guards.judges import as_json
from config.schema.pipelines.outputs import GENERATED, NOTHING, TENSORS, variables
from config.schema.text import covers


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report unknown names, and guards that cannot be compiled."""
    guards = names(root["guards"])
    for used in _uses(root):
        if used.text is not None and used.text not in guards:
            yield doc.problem(used.place, f'no guard is named "{used.text}"', closest(used.text, guards))
    for guard in root["guards"]:
        yield from _patterns(doc, guard)
        yield from _file(doc, guard["file"])
        yield from _models(doc, root, guard)
        yield from _condition(doc, root, guard)
        yield from _schema(doc, guard)
        if guard["kind"].text == "language" and find_spec("py3langid") is None:
            yield doc.problem(guard["kind"].place, f"needs py3langid: {installing('languages')}")


def advice(doc: Document, root: Node) -> Iterator[Problem]:
    """Report guards that nothing applies."""
    used = {use.text for use in _uses(root)}
    for guard in root["guards"]:
        if guard["name"].text not in used:
            yield doc.problem(guard["name"].place, "no tenant, model or route applies this guard")


def words_of(path: str) -> list[str]:
    """The words of a file. Raises `OSError`, and `ValueError` for a file that is no list of words."""
    text = Path(path).read_bytes().decode()
    words = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not words:
        raise ValueError("has no words")
    if len(words) > MOST_WORDS:
        raise ValueError(f"has {len(words)} words, and a guard compares {MOST_WORDS} at most")
    if longest := next((word for word in words if len(word) > 256), None):
        raise ValueError(f"has a line of {len(longest)} characters, and a word has 256 at most")
    return words


def _uses(root: Node) -> Iterator[Node]:
    for holder in (*root["tenants"], *root["models"]):
        yield from holder["guards"]
    for model in root["models"]:
        for route in model["routes"]:
            yield from route["guards"]


def _patterns(doc: Document, guard: Node) -> Iterator[Problem]:
    for entry in guard["patterns"]:
        pattern = entry["pattern"] if isinstance(entry.value, dict) else entry
        if not isinstance(pattern.value, str):
            continue
        try:
            compiled(pattern.value)
            longest_match(pattern.value)
        except PatternError as error:
            yield doc.problem(pattern.place, str(error))
        except EngineMissing as error:
            yield doc.problem(pattern.place, f"needs {error}: {installing('guards')}")
            return


def _models(doc: Document, root: Node, guard: Node) -> Iterator[Problem]:
    """Report models that do not exist."""
    configured = model_names(root)
    for name in (guard["model"], guard["embed"], guard["to"], guard["recogniser"]["model"]):
        if name.text is not None and configured and not any(covers(each, name.text) for each in configured):
            yield doc.problem(name.place, f'no model is named "{name.text}"', closest(name.text, configured))


def _condition(doc: Document, root: Node, guard: Node) -> Iterator[Problem]:
    """Report a condition that does not compile."""
    condition, model = guard["match_if"], guard["model"]
    if not isinstance(condition.value, str) or model.text is None:
        return
    own = TENSORS if takes_tensors(root)(model.text) else GENERATED
    try:
        compile_expression(condition.value, variables(NOTHING, {}, own), BOOL)
    except CompileError as error:
        yield doc.problem(condition.place, str(error))


def _schema(doc: Document, guard: Node) -> Iterator[Problem]:
    """Report what is no schema."""
    schema = guard["json_schema"]
    if not isinstance(schema.value, dict):
        return
    try:
        from jsonschema import Draft202012Validator, FormatChecker, SchemaError
    except ModuleNotFoundError:
        yield doc.problem(schema.place, f"needs jsonschema: {installing('guards')}")
        return
    try:
        Draft202012Validator.check_schema(as_json(schema.value), FormatChecker(()))  # patterns are RE2's
    except SchemaError as error:
        yield doc.problem(schema.place, f"is no JSON Schema: {error.message}"[:300])
    try:
        for place, fault in faults_of(schema.value):
            yield doc.problem((*schema.place, *place), fault)
    except EngineMissing as error:
        yield doc.problem(schema.place, f"needs {error}: {installing('guards')}")


def _file(doc: Document, file: Node) -> Iterator[Problem]:
    if not isinstance(file.value, str):
        return
    path = Path(doc.file).parent / file.value
    try:
        words_of(str(path))
    except OSError as error:
        yield doc.problem(file.place, f"{path}: {error.strerror}")
    except UnicodeDecodeError:
        yield doc.problem(file.place, f"{path}: is not UTF-8 text")
    except ValueError as error:
        yield doc.problem(file.place, f"{path}: {error}")
