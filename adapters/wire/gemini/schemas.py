"""JSON Schema in the subset that older models take: without references, with nullable types and plain enumerations."""

from typing import Any

Object = dict[str, Any]

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


def reduced(schema: Any) -> Object:
    """The schema in the subset. Words that only narrow a value are left out."""
    defined = _definitions(schema) if isinstance(schema, dict) else {}
    return _schema(schema, defined, ())


def _definitions(schema: Object) -> dict[str, Any]:
    """The targets of references, by the reference's text."""
    defined: dict[str, Any] = {"#": schema}
    for word in ("$defs", "definitions"):
        if isinstance(named := schema.get(word), dict):
            defined |= {f"#/{word}/{name}": value for name, value in named.items()}
    return defined


def _schema(given: Any, defined: dict[str, Any], path: tuple[str, ...]) -> Object:
    if not isinstance(given, dict):
        return {"type": "object"} if given is not False else {"type": "string", "enum": [""]}
    if isinstance(target := given.get("$ref"), str):
        given = {name: value for name, value in given.items() if name != "$ref"}
        if target in defined and len(path) < MAX_DEPTH and path.count(target) < 2:
            inner = _schema(defined[target], defined, (*path, target))
            return {**inner, **{name: value for name, value in given.items() if name in ("description", "title")}}
        return {"type": "object", **{name: value for name, value in given.items() if name == "description"}}
    if isinstance(parts := given.get("allOf"), list):
        given = _merged({name: value for name, value in given.items() if name != "allOf"}, parts, defined)
    schema: Object = {name: value for name, value in given.items() if name in _SAME}
    _add_type(schema, given, defined, path)
    _add_choice(schema, given, defined, path)
    if not schema.get("required", True):
        del schema["required"]
    return schema


def _merged(given: Object, parts: list[Any], defined: dict[str, Any]) -> Object:
    """One schema for all of `allOf`."""
    merged = dict(given)
    for part in parts:
        if isinstance(part, dict) and isinstance(target := part.get("$ref"), str):
            part = defined.get(target)
        if not isinstance(part, dict):
            continue
        for name, value in part.items():
            if name == "properties" and isinstance(value, dict):
                merged[name] = {**merged.get(name, {}), **value}
            elif name == "required" and isinstance(value, list):
                merged[name] = [*merged.get(name, ()), *(one for one in value if one not in merged.get(name, ()))]
            else:
                merged.setdefault(name, value)
    return merged


def _add_type(schema: Object, given: Object, defined: dict[str, Any], path: tuple[str, ...]) -> None:
    kinds = given.get("type")
    if isinstance(kinds, list):
        if "null" in kinds:
            schema["nullable"] = True
        others = [kind for kind in kinds if kind != "null"]
        if len(others) > 1:
            schema["anyOf"] = [_schema({**given, "type": kind}, defined, path) for kind in others]
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
        schema["items"] = _schema(given.get("items", {"type": "string"}), defined, path)
    if isinstance(properties := given.get("properties"), dict) and properties:
        schema["properties"] = {name: _schema(value, defined, path) for name, value in properties.items()}
        if "required" in schema:
            schema["required"] = [name for name in schema["required"] if name in properties]
    else:
        schema.pop("required", None)
    if given.get("format") in _FORMATS.get(kinds, ()):
        schema["format"] = given["format"]


def _add_choice(schema: Object, given: Object, defined: dict[str, Any], path: tuple[str, ...]) -> None:
    """Add an enumeration, which has texts only, and alternatives."""
    values = given.get("enum", [given["const"]] if "const" in given else None)
    if isinstance(values, list):
        if None in values:
            schema["nullable"] = True
        texts = [value if isinstance(value, str) else _text(value) for value in values if value is not None]
        if texts := [text for text in texts if text]:
            schema |= {"type": "string", "format": "enum", "enum": texts}
    choices = given.get("anyOf", given.get("oneOf"))
    if isinstance(choices, list):
        others = [one for one in choices if not (isinstance(one, dict) and one.get("type") == "null")]
        if len(others) < len(choices):
            schema["nullable"] = True
        if len(others) == 1:
            inner = _schema(others[0], defined, path)
            schema |= {name: value for name, value in inner.items() if name not in ("description", "title")}
            if "description" in inner:
                schema.setdefault("description", inner["description"])
        elif others:
            schema["anyOf"] = [_schema(one, defined, path) for one in others]


def _text(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
