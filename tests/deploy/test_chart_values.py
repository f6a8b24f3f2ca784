"""The schema of the chart's values, and its version."""

import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.deploy.chart_values import RUNTIME_SAMPLES, SAMPLES, SCHEMA, SETS, differences, values_of, wrong
from tests.support.helm import CHART

pytestmark = pytest.mark.plain


def test_every_field_of_the_schema_has_samples_and_a_default() -> None:
    assert differences(SCHEMA, SAMPLES) == set()
    assert differences(SCHEMA["properties"]["runtimes"]["additionalProperties"], RUNTIME_SAMPLES) == set()
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.Draft7Validator(SCHEMA).validate(defaults)
    assert defaults.keys() | {"global"} == SCHEMA["properties"].keys()
    for name, section in defaults.items():
        if "properties" in SCHEMA["properties"][name]:
            assert section.keys() == SCHEMA["properties"][name]["properties"].keys(), name


def test_the_schema_accepts_generated_values_and_refuses_each_mistake() -> None:
    validator = jsonschema.Draft7Validator(SCHEMA)
    for seed in range(SETS):
        validator.validate(values_of(seed))
    for place, values in wrong(SCHEMA, SAMPLES):
        assert not validator.is_valid(values), place
    runtime = SCHEMA["properties"]["runtimes"]["additionalProperties"]
    for place, values in wrong(runtime, RUNTIME_SAMPLES):
        assert not validator.is_valid({"runtimes": {"a": {"kind": "llm", "model": "m", **values}}}), place


def test_the_chart_has_the_version_of_the_distribution() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == project["version"]
