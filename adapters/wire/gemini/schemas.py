"""JSON Schema in the subset that older models take: without references, with nullable types and plain enumerations."""

from typing import Any

import msgspec

from adapters.errors import CallerError

Object = dict[str, Any]
Path = tuple[frozenset[str], ...]
"""The references that are replaced around a schema, the outermost first."""

MOST_NODES = 10_000
"""Schemas in the result. Replaced references and lists of types multiply those of the client."""
_NODE = 1000
"""Bytes of copied words that count as one more schema."""
_NAMES = 20
"""Names in a schema that count as one more."""

MAX_DEPTH = 8
"""References within references that are replaced. The form has no recursion: a deeper one becomes any object."""
_SAME = frozenset({
    "description", "title", "nullable", "default", "minLength", "maxLength", "pattern", "minimum", "maximum",
    "minItems", "maxItems", "minProperties", "maxProperties", "required", "propertyOrdering", "example",
})  # fmt: skip
_FORMATS = {
    "string": frozenset({"enum", "date-time"}),
    "number": frozenset({"float", "double"}),
    "integer": frozenset({"int32", "int64"}),
}


_encode = msgspec.json.Encoder().encode


def reduced(schema: Any, field: str) -> Object:
    """The schema in the subset. Words that only narrow a value are left out. Raises `CallerError` that names the
    `field` for a schema that is malformed, or too large without its references."""
    try:
        return _Reduction(_definitions(schema) if isinstance(schema, dict) else {}).schema(schema, ())
    except _TooLarge:
        reason = f"has more than {MOST_NODES:,} schemas once its references and types are written out"
    except RecursionError:
        reason = "is nested too deeply"
    except (TypeError, ValueError, AttributeError):  # a word with a value of another type
        reason = "is not valid"
    raise CallerError(f"The JSON Schema in `{field}` {reason}.", param=field) from None


def _definitions(schema: Object) -> dict[str, Any]:
    """The targets of references, by the reference's text."""
    defined: dict[str, Any] = {"#": schema}
    for word in ("$defs", "definitions"):
        if isinstance(named := schema.get(word), dict):
            defined |= {f"#/{word}/{name}": value for name, value in named.items()}
    return defined


class _TooLarge(Exception):
    pass


class _Reduction:
    """The work on one schema of a client."""

    def __init__(self, defined: dict[str, Any]) -> None:
        self._defined = defined
        self._left = MOST_NODES

    def _spend(self, schemas: int) -> None:
        self._left -= schemas
        if self._left < 0:
            raise _TooLarge

    def schema(self, given: Any, path: Path) -> Object:
        """The schema within the references of `path`."""
        self._spend(1 + (len(given) // _NAMES if isinstance(given, dict) else 0))
        if not isinstance(given, dict):
            return {"type": "object"} if given is not False else {"type": "string", "enum": [""]}
        if isinstance(target := given.get("$ref"), str):
            given = {name: value for name, value in given.items() if name != "$ref"}
            if self._is_replaced(target, path):
                inner = self.schema(self._defined[target], (*path, frozenset({target})))
                return {**inner, **{name: value for name, value in given.items() if name in ("description", "title")}}
            return {"type": "object", **{name: value for name, value in given.items() if name == "description"}}
        if isinstance(parts := given.get("allOf"), list):
            given, path = self._merged({name: value for name, value in given.items() if name != "allOf"}, parts, path)
        schema: Object = {name: value for name, value in given.items() if name in _SAME}
        self._spend(len(_encode(schema)) // _NODE)
        self._add_type(schema, given, path)
        self._add_choice(schema, given, path)
        if not schema.get("required", True):
            del schema["required"]
        return schema

    def _is_replaced(self, target: str, path: Path) -> bool:
        is_defined = target in self._defined and len(path) < MAX_DEPTH
        return is_defined and sum(target in each for each in path) < 2

    def _merged(self, given: Object, parts: list[Any], path: Path) -> tuple[Object, Path]:
        """One schema for all of `allOf`, and the path of what it has."""
        merged, targets = dict(given), set[str]()
        properties, required = dict(given.get("properties", {})), dict.fromkeys(given.get("required", ()))
        for part in parts:
            if isinstance(part, dict) and isinstance(target := part.get("$ref"), str):
                part = self._defined[target] if self._is_replaced(target, path) else None
                targets.add(target)
            if not isinstance(part, dict):
                continue
            for name, value in part.items():
                if name == "properties" and isinstance(value, dict):
                    properties |= value
                    self._spend(len(value) // _NAMES)
                elif name == "required" and isinstance(value, list):
                    required |= dict.fromkeys(value)
                    self._spend(len(value) // _NAMES)
                else:
                    merged.setdefault(name, value)
            self._spend(1 + len(part) // _NAMES)
        if properties:
            merged["properties"] = properties
        if required:
            merged["required"] = list(required)
        return merged, (*path, frozenset(targets)) if targets else path

    def _add_type(self, schema: Object, given: Object, path: Path) -> None:
        kinds = given.get("type")
        if isinstance(kinds, list):
            if "null" in kinds:
                schema["nullable"] = True
            others = [kind for kind in kinds if kind != "null"]
            if len(others) > 1:
                schema["anyOf"] = [self.schema({**given, "type": kind}, path) for kind in others]
                for name in schema.keys() - {"anyOf", "description", "title", "nullable"}:
                    del schema[name]
                return
            kinds = others[0] if others else "string"
        if not isinstance(kinds, str):
            kinds = next((kind for kind, word in (("object", "properties"), ("array", "items")) if word in given), None)
        if kinds is None:
            return
        schema["type"] = kinds
        if kinds == "array":
            schema["items"] = self.schema(given.get("items", {"type": "string"}), path)
        if isinstance(properties := given.get("properties"), dict) and properties:
            schema["properties"] = {name: self.schema(value, path) for name, value in properties.items()}
            if "required" in schema:
                schema["required"] = [name for name in schema["required"] if name in properties]
        else:
            schema.pop("required", None)
        form = given.get("format")
        if isinstance(form, str) and form in _FORMATS.get(kinds, ()):
            schema["format"] = form

    def _add_choice(self, schema: Object, given: Object, path: Path) -> None:
        """Add an enumeration, which has texts only, and alternatives."""
        values = given.get("enum", [given["const"]] if "const" in given else None)
        if isinstance(values, list):
            if None in values:
                schema["nullable"] = True
            texts = [value if isinstance(value, str) else _text(value) for value in values if value is not None]
            if texts := [text for text in texts if text]:
                schema |= {"type": "string", "format": "enum", "enum": texts}
                self._spend(sum(map(len, texts), len(texts)) // _NODE)
        choices = given.get("anyOf", given.get("oneOf"))
        if isinstance(choices, list):
            others = [one for one in choices if not (isinstance(one, dict) and one.get("type") == "null")]
            if len(others) < len(choices):
                schema["nullable"] = True
            if len(others) == 1:
                inner = self.schema(others[0], path)
                schema |= {name: value for name, value in inner.items() if name not in ("description", "title")}
                if "description" in inner:
                    schema.setdefault("description", inner["description"])
            elif others:
                schema["anyOf"] = [self.schema(one, path) for one in others]


def _text(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
