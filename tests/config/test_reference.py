"""The reference page equals the generated page, and every field has a description."""

from pathlib import Path

import pytest

from config.jsonschema import descriptions
from config.reference import page
from config.schema.config import HttpConfig, MatchConfig, RetryConfig
from config.schema.protocols import BUILT_IN
from config.schema.route import LONGEST_BACKOFF
from config.schema.runtimes import KINDS
from config.schema.section import Section
from config.schema.units import HELD_COPIES
from policies.limits.price import OUTPUT_ESTIMATE


def sections() -> list[type[Section]]:
    waiting: list[type[Section]] = [Section]
    for section in waiting:
        waiting += [each for each in section.__subclasses__() if each.__module__.startswith("config.")]
    return [section for section in waiting if not section.__name__.startswith("_")]


def test_the_page_is_up_to_date() -> None:
    written = Path("docs/configuration.md").read_text()
    assert written == page() + "\n", "run: python -m config.reference > docs/configuration.md"


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.__name__)
def test_every_field_is_described(section: type[Section]) -> None:
    assert [name for name in section.model_fields if not descriptions(section).get(name)] == []


def test_every_protocol_and_runtime_has_a_section() -> None:
    text = page()
    for name in BUILT_IN:
        assert f"### `pools[].protocol: {name}`" in text
    for name in KINDS:
        assert f"### `pools[].runtime: {name}`" in text


def test_types_units_and_defaults() -> None:
    text = page()
    assert "| `connect_timeout` | duration, > 0s | `5s` |" in text
    assert "| `leeway` | duration, ≤ 5m | `30s` |" in text
    assert "| `kv_cache` | size or percentage | `512MiB` |" in text
    assert "| `per_tenant` | integer, ≥ 1, ≤ 10,000,000 | `10000` |" in text
    assert "| `protocol` | [pools[].protocol: openai](#poolsprotocol-openai) ·" in text
    assert "| `fallback` | list of [models[].routes[].fallback[]]" in text


@pytest.mark.parametrize(
    ("section", "field", "number"),
    [
        (RetryConfig, "backoff", f"up to {LONGEST_BACKOFF:g} s"),
        (MatchConfig, "cost", f"or else {OUTPUT_ESTIMATE}"),
        (HttpConfig, "max_held", f"A body counts {('once', 'twice', 'three times')[HELD_COPIES - 1]}"),
    ],
)
def test_a_description_has_the_number_of_the_code(section: type[Section], field: str, number: str) -> None:
    assert number in " ".join(descriptions(section)[field].split())
