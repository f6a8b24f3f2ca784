"""The schema is checked by a small validator of the keywords it uses; an unknown one fails the test."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from config import default_path
from config.jsonschema import json_schema

from .conftest import RIGHT

EXAMPLES = sorted(default_path().parent.glob("examples/*.yaml"))
FILES = [default_path(), *(path for path in EXAMPLES if not path.stem.endswith(".tests"))]
NOTES = {"$schema", "$defs", "title", "description", "default", "examples"}
TYPES: dict[str, Any] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "array": list, "object": dict, "null": type(None),
}  # fmt: skip


class Mismatch(Exception):
    """A value that the schema does not allow."""


def check(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> None:
    for keyword, rule in sorted(schema.items(), key=lambda item: item[0] != "type"):  # the others assume it
        if not allowed(value, keyword, rule, schema, root):
            raise Mismatch(f"{value!r}: {keyword} {rule!r}")


def allowed(value: Any, keyword: str, rule: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    if keyword in NOTES:
        return True
    if keyword == "$ref":
        check(value, root["$defs"][rule.removeprefix("#/$defs/")], root)
        return True
    if keyword == "anyOf":
        return any(matches(value, option, root) for option in rule)
    if keyword == "oneOf":
        return sum(matches(value, option, root) for option in rule) == 1
    if keyword == "type":
        return isinstance(value, TYPES[rule]) and not (isinstance(value, bool) and rule != "boolean")
    if keyword == "enum":
        return value in rule
    if keyword == "const":
        return bool(value == rule)
    if keyword == "required":
        return all(name in value for name in rule)
    if keyword == "properties":
        for name in value.keys() & rule.keys():
            check(value[name], rule[name], root)
        return True
    if keyword == "additionalProperties":
        others = {name: inner for name, inner in value.items() if name not in schema.get("properties", {})}
        return not others if rule is False else all(matches(inner, rule, root) for inner in others.values())
    if keyword == "patternProperties":
        ((pattern, inner),) = rule.items()
        return all(re.search(pattern, name) and matches(value[name], inner, root) for name in value)
    if keyword == "items":
        for item in value:
            check(item, rule, root)
        return True
    if keyword == "prefixItems":
        for item, inner in zip(value, rule, strict=False):
            check(item, inner, root)
        return True
    bounds: dict[str, Callable[[], bool]] = {
        "pattern": lambda: re.search(rule, value) is not None,
        "minItems": lambda: len(value) >= rule,
        "maxItems": lambda: len(value) <= rule,
        "minLength": lambda: len(value) >= rule,
        "maxLength": lambda: len(value) <= rule,
        "maxProperties": lambda: len(value) <= rule,
        "minimum": lambda: value >= rule,
        "maximum": lambda: value <= rule,
        "exclusiveMinimum": lambda: value > rule,
    }
    return bounds[keyword]()


def matches(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    try:
        check(value, schema, root)
    except Mismatch:
        return False
    return True


def plain(text: str) -> Any:
    """A document as an editor reads it: in YAML 1.2 a date is text, and so is `on`."""
    quoted = re.sub(r"\bon: ", "'on': ", text.replace("2027-06-30", "'2027-06-30'"))
    return yaml.load(quoted, yaml.SafeLoader)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_packaged_file_matches(path: Path) -> None:
    check(plain(path.read_text()), json_schema(), json_schema())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version: 1", "version: 2"),
        ("version: 1\n", ""),
        ("name: spare", "nam: spare"),
        ("name: spare", "name: spare\n    key: inline"),
        ("name: spare", "name: spare\n    connect_timeout: 10"),
        ("name: spare", "name: spare\n    connect_timeout: 10 parsecs"),
        ("name: spare", "name: spare\n    balance: {by: luck}"),
        ("name: spare", "name: spare\n    max_connections: 0"),
        ("[http://10.0.0.7:8000]", "[10.0.0.7:8000]"),
        ("[http://10.0.0.7:8000]", "[{url: 'http://a', weight: 0}]"),
        ("models: [chat]", "models: []"),
    ],
)
def test_mistakes_do_not_match(old: str, new: str) -> None:
    schema = json_schema()
    check(plain(RIGHT), schema, schema)
    assert not matches(plain(RIGHT.replace(old, new, 1)), schema, schema)


@pytest.mark.parametrize("key", ["${NAME}", "file:key.txt"])
def test_references_match(key: str) -> None:
    schema = json_schema()
    check(plain(RIGHT.replace("name: spare", f"name: spare\n    key: {key}")), schema, schema)
    check(plain(RIGHT.replace("name: spare", "name: ${NAME:-spare}\n    connect_timeout: ${WAIT}")), schema, schema)


def sections(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"Config": schema, **schema["$defs"]}


def test_every_field_is_described() -> None:
    fields = {
        f"{name}.{field}": rule
        for name, section in sections(json_schema()).items()
        for option in section.get("anyOf", [section])
        for field, rule in option.get("properties", {}).items()
    }
    assert "EndpointConfig.url" in fields
    assert len(fields) > 80
    assert [name for name, rule in fields.items() if not rule.get("description")] == []


def test_the_schema_has_keywords_of_json_schema_only() -> None:
    Draft202012Validator.check_schema(schema := json_schema())
    rules = [schema, *schema["$defs"].values()]
    keywords = set[str]()
    while rules:
        rule = rules.pop()
        keywords |= rule.keys()
        inner = [*rule.get("properties", {}).values(), *rule.get("anyOf", ()), *rule.get("oneOf", ())]
        inner += [rule[name] for name in ("items", "additionalProperties", "propertyNames") if name in rule]
        rules += [one for one in inner if isinstance(one, dict)]
    assert keywords - set(Draft202012Validator.VALIDATORS) <= {
        "$defs", "$schema", "default", "description", "discriminator", "examples", "title",
    }  # fmt: skip


def test_defaults_are_as_a_person_writes_them_and_match_their_own_field() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["drain"]["default"] == "30s"
    assert schema["properties"]["listen"]["default"]["http"] == "127.0.0.1:8080"
    assert schema["$defs"]["HttpConfig"]["properties"]["max_body"]["default"] == "32MiB"
    for section in sections(schema).values():
        for rule in section.get("properties", {}).values():
            if "default" in rule:
                check(rule["default"], rule, schema)
