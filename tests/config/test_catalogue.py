"""The catalogue of models: its data, the search in it, the warnings of `headrace check`, and catalogues from lists."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from config.catalogue.entries import ABILITIES
from config.catalogue.reading import SHIPPED, CatalogueError, ModelCatalogue, catalogue
from config.imports.model_list import catalogue_of
from config.imports.price_list import read_list
from config.schema.config import PriceConfig
from gateway.process.commands import app

BOOK = catalogue()


def rows(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    assert len(made) == len(pairs), "a name occurs twice"
    return made


def test_names_are_unique_and_dates_are_days() -> None:
    data = json.loads(SHIPPED.read_text(encoding="utf-8"), object_pairs_hook=rows)
    assert date.fromisoformat(data["date"]) <= date(2100, 1, 1)
    assert all({"name", "version", "license"} == set(source) for source in data["sources"])
    assert {source["license"] for source in data["sources"]} == {"MIT"}
    hosts = [host for entry in data["providers"].values() for host in entry["hosts"]]
    assert len(set(hosts)) == len(hosts)
    for facts in BOOK.all():
        assert facts.deprecated in ("", "yes") or date.fromisoformat(facts.deprecated)


def test_prices_are_whole_picos_and_abilities_are_listed_ones() -> None:
    priced = 0
    for facts in BOOK.all():
        if (price := facts.written_price()) is not None:
            priced += 1
            PriceConfig.model_validate(json.loads(json.dumps(price)))  # refuses more than six decimals
        assert facts.can | facts.lacks <= set(ABILITIES)
        assert not facts.can & facts.lacks
        for count in (facts.context, facts.output):
            assert count is None or 0 < count < 10**8, facts
    assert priced > 500


@pytest.mark.parametrize(
    ("model", "provider", "expected"),
    [
        ("gpt-4o", "openai", "gpt-4o"),
        ("gpt-4o-1999-01-31", "openai", "gpt-4o"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "anthropic", "claude-sonnet-4-5-20250929"),
        ("claude-sonnet-4-5@20990101", "anthropic", "claude-sonnet-4-5"),
        ("models/gemini-2.5-pro", "google", "gemini-2.5-pro"),
        ("gpt-4o", None, "gpt-4o"),
        ("no-such-model", None, None),
        ("gpt-4o", "no-such-provider", None),
        ("", None, None),
    ],
)
def test_the_marks_of_clouds_and_dates_are_no_part_of_a_name(
    model: str, provider: str | None, expected: str | None
) -> None:
    facts = BOOK.find(model, provider)
    assert (facts and facts.name) == expected


def test_hosts_name_their_providers() -> None:
    assert BOOK.provider_at("https://api.openai.com/v1") == "openai"
    assert BOOK.provider_at("https://corp.openai.azure.com") == "openai"
    assert BOOK.provider_at("https://europe-west4-aiplatform.googleapis.com") == "google"
    assert BOOK.provider_at("https://bedrock-runtime.us-east-1.amazonaws.com") == "bedrock"
    assert BOOK.provider_at("http://10.0.0.1:8000") is BOOK.provider_at("https://api.openai.com.evil.example") is None


# ── warnings ──────────────────────────────────────────────────────────────────────────────────────────

CATALOGUE = {
    "date": "2026-01-02",
    "sources": [],
    "providers": {
        "openai": {
            "hosts": ["api.openai.com"],
            "models": {
                "small": {"output": 100, "price": {"prompt": "1", "completion": "2"}, "lacks": ["vision", "schema"]},
                "old": {"deprecated": "2025-12-31", "context": 8192},
            },
        }
    },
}


def checked(folder: Path, models: list[dict[str, Any]], url: str = "https://api.openai.com", **more: Any) -> str:
    (folder / "facts.json").write_text(json.dumps(CATALOGUE))
    written = {
        "version": 1,
        "catalogue": {"file": "facts.json"},
        "pools": [{"name": "hosted", "endpoints": [url], "probe": None, "protocol": "openai"}],
        "models": models,
        "tenants": [{"name": "acme", "models": ["*"]}],
        **more,
    }
    file = folder / "headrace.yaml"
    file.write_text(yaml.safe_dump(written, sort_keys=False))
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_check_warns_about_hosted_models(tmp_path: Path) -> None:
    rewrite = {"caps": {"max_completion_tokens": 101}, "defaults": {"response_format": {"type": "json_schema"}}}
    models = [
        {"name": "small", "routes": [{"when": {"vision": True}, "to": "hosted"}, {"to": "hosted", "rewrite": rewrite}]},
        {"name": "old", "routes": [{"to": "hosted"}]},
        {"name": "unlisted", "routes": [{"to": "hosted"}]},
        {"name": "family-*", "routes": [{"to": "hosted"}]},
    ]
    output = checked(tmp_path, models)
    warnings = [line.split(": warning: ")[1] for line in output.splitlines() if ": warning: " in line]
    assert warnings == [
        "models[0].routes[0].when.vision: sends requests with images to small, which does not support them",
        "models[0].routes[1].rewrite.caps.max_completion_tokens: is above the longest answer of small, 100 tokens",
        "models[0].routes[1].rewrite.defaults.response_format: asks small for answers by a JSON schema, which it does"
        " not support",
        "models[0].name: has no price, so its use costs nothing here: the catalogue of 2026-01-02 has one of small"
        " (headrace prices show small)",
        "models[1].routes[0]: sends to old, which its provider has deprecated since 2025-12-31",
    ]
    priced = [{**models[0], "routes": [{"to": "hosted"}], "price": {"prompt": "1 usd/1M", "completion": "1 usd/1M"}}]
    assert "warning" not in checked(tmp_path, priced)
    assert "warning" not in checked(tmp_path, models, "http://10.0.0.1:8000")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"date": 1, "sources": 2, "providers": {"a": 3}}', "[" * 100_000])
def test_a_file_that_is_no_catalogue_ends_with_a_message(content: str, tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    file.write_text(content)
    with pytest.raises(CatalogueError, match="is no"):
        catalogue(file)
    result = CliRunner().invoke(app, ["prices", "show", "small", "--catalogue", str(file)])
    assert (result.exit_code, "Traceback" in result.output) == (2, False)


def test_prices_are_shown_from_the_catalogue(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["prices", "show", "gpt-4o", "no-such-model"])
    assert shown.exit_code == 0
    assert shown.stdout.startswith('"gpt-4o": {prompt: 2.5 usd/1M, completion: 10 usd/1M')
    assert "context_window: 128000" in shown.stderr
    assert "has no price of it" in shown.stderr
    assert CliRunner().invoke(app, ["prices", "show", "no-such-model"]).exit_code == 1


LISTED = """{
  "small-chat": {"litellm_provider": "openai", "input_cost_per_token": 1.5e-07, "output_cost_per_token": 6e-07,
    "max_input_tokens": 128000, "max_output_tokens": "no", "supports_vision": true, "supports_reasoning": false,
    "deprecation_date": "2027-02-03"},
  "gemini/flash": {"litellm_provider": "gemini", "max_input_tokens": 1e6, "deprecation_date": "soon",
    "input_cost_per_token": 1e-13},
  "other/x": {"litellm_provider": "other", "max_input_tokens": 5}
}"""


def test_a_published_list_becomes_a_catalogue(tmp_path: Path) -> None:
    file, output = tmp_path / "list.json", tmp_path / "facts.json"
    file.write_text(LISTED)
    done = CliRunner().invoke(app, ["prices", "import", str(file), "--catalogue", str(output)])
    assert done.exit_code == 0, done.output
    assert "2 models" in done.stderr
    made = catalogue(output)
    small, flash = made.find("small-chat", "openai"), made.find("flash", "google")
    assert small is not None
    assert (small.context, small.output) == (128000, None)
    assert (set(small.can), set(small.lacks)) == ({"vision"}, {"reasoning"})
    assert small.written_price() == {"prompt": "0.15 usd/1M", "completion": "0.6 usd/1M"}
    assert small.deprecated == "2027-02-03"
    assert flash is not None
    assert (flash.context, flash.price, flash.deprecated) == (1_000_000, None, "")


VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [0, -1, 1e-07, 1e30, 1e-20, "x", None, True, [], {}, "2026-01-01", 4.5, 128000]
)
ENTRIES = st.dictionaries(
    st.sampled_from(
        ["litellm_provider", "input_cost_per_token", "output_cost_per_token", "max_input_tokens", "max_output_tokens",
         "supports_vision", "deprecation_date", "input_cost_per_token_above_200k_tokens"]
    ),
    VALUES | st.just("openai"),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["a", "openai/b", "c/d", ""]), ENTRIES | VALUES, max_size=3))
@settings(max_examples=60)
def test_any_list_becomes_a_catalogue(entries: dict[str, Any]) -> None:
    data = catalogue_of(read_list(json.dumps(entries)), "2026-01-01", "list", BOOK.hosts)
    for facts in ModelCatalogue(json.loads(json.dumps(data))).all():
        if (price := facts.written_price()) is not None:
            PriceConfig.model_validate(json.loads(json.dumps(price)))
