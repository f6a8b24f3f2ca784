"""A number in the place of a section: the problem lists the fields, and its example is valid."""

import re

import pytest
import yaml

from .conftest import RIGHT, Complaints

SECTIONS = [
    ("pools", "probe", 5),
    ("pools", "breaker", 3),
    ("pools", "outliers", 3),
    ("pools", "balance", 2),
    ("pools", "queue", 10),
    ("models", "timeout", 30),
    ("models", "timeout", 0.5),
    ("models", "retry", 3),
    ("models", "hedge", 1),
    ("models", "cache", 60),
    ("models", "rewrite", 1),
    ("tenants", "limits", 100),
]


@pytest.mark.parametrize(("part", "name", "value"), SECTIONS)
def test_a_number_in_the_place_of_fields(part: str, name: str, value: float, complaints: Complaints) -> None:
    written = yaml.safe_load(RIGHT)
    place = written[part][0]["routes"][0] if part == "models" else written[part][0]
    place[name] = value
    (problem,) = [line for line in complaints(yaml.safe_dump(written)) if f".{name}:" in line]
    assert f"got {value}" in problem
    fields = re.search(r"expected fields \(([a-z_, ]+)\)", problem)
    assert fields is not None, problem
    if example := re.search(r"such as `(.+?)`", problem):
        place |= yaml.safe_load(example[1])
        assert not [line for line in complaints(yaml.safe_dump(written)) if "expected" in line]


@pytest.mark.parametrize(
    ("name", "value", "example"), [("timeout", 30, "first_byte: 30s"), ("retry", 3, "attempts: 3")]
)
def test_common_slips_have_an_example(name: str, value: int, example: str, complaints: Complaints) -> None:
    written = yaml.safe_load(RIGHT)
    written["models"][0]["routes"][0][name] = value
    (problem,) = complaints(yaml.safe_dump(written))
    assert f"such as `{name}: {{{example}}}`" in problem
