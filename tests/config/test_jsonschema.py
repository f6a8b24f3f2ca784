"""The JSON Schema of the file: editors accept what the gateway accepts, and show its mistakes."""

import re
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


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


@pytest.fixture(scope="module")
def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(schema)


def plain(text: str) -> Any:
    """A document as an editor reads it: in YAML 1.2 a date is text, and so is `on`."""
    quoted = re.sub(r"\bon: ", "'on': ", text.replace("2027-06-30", "'2027-06-30'"))
    return yaml.load(quoted, yaml.SafeLoader)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_packaged_file_matches(validator: Draft202012Validator, path: Path) -> None:
    validator.validate(plain(path.read_text()))


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
def test_mistakes_do_not_match(validator: Draft202012Validator, old: str, new: str) -> None:
    assert validator.is_valid(plain(RIGHT))
    assert not validator.is_valid(plain(RIGHT.replace(old, new, 1)))


@pytest.mark.parametrize("key", ["${NAME}", "file:key.txt"])
def test_references_match(validator: Draft202012Validator, key: str) -> None:
    validator.validate(plain(RIGHT.replace("name: spare", f"name: spare\n    key: {key}")))
    validator.validate(plain(RIGHT.replace("name: spare", "name: ${NAME:-spare}\n    connect_timeout: ${WAIT}")))


def sections(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"Config": schema, **schema["$defs"]}


def test_every_field_is_described(schema: dict[str, Any]) -> None:
    fields = {
        f"{name}.{field}": rule
        for name, section in sections(schema).items()
        for option in section.get("anyOf", [section])
        for field, rule in option.get("properties", {}).items()
    }
    assert "EndpointConfig.url" in fields
    assert len(fields) > 80
    assert [name for name, rule in fields.items() if not rule.get("description")] == []


def test_the_schema_has_keywords_of_json_schema_only(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
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


def test_defaults_are_as_a_person_writes_them_and_match_their_own_field(
    schema: dict[str, Any], validator: Draft202012Validator
) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["drain"]["default"] == "30s"
    assert schema["properties"]["listen"]["default"]["http"] == "127.0.0.1:8080"
    assert schema["$defs"]["HttpConfig"]["properties"]["max_body"]["default"] == "32MiB"
    for section in sections(schema).values():
        for rule in section.get("properties", {}).values():
            if "default" in rule:
                validator.evolve(schema=rule).validate(rule["default"])
