"""Prices from a list in LiteLLM's format: an excerpt of our own, and the real list of LiteLLM's distribution."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from config.imports.price_list import PriceListError, entry_of, price_of, read_list, unread
from config.schema.money import PriceConfig
from gateway.process.commands import app
from loadtests.venvs import add, ensure
from policies.limits.price import Price

EXCERPT = """{
  "sample_spec": {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0, "mode": "chat"},
  "small-chat": {"input_cost_per_token": 1.5e-07, "output_cost_per_token": 6e-07, "litellm_provider": "openai",
    "cache_read_input_token_cost": 7.5e-08, "output_cost_per_reasoning_token": 0.0000007, "max_tokens": 16384},
  "anthropic/long-chat": {"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05,
    "input_cost_per_token_above_200k_tokens": 6e-06, "output_cost_per_token_above_200k_tokens": 2.25e-05},
  "embedder": {"input_cost_per_token": 2e-08, "output_cost_per_token": 0.0},
  "painter": {"output_cost_per_image": 0.04},
  "caching": {"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05, "input_cost_per_token_batches": 1.5e-06,
    "output_cost_per_token_batches": 7.5e-06, "cache_creation_input_token_cost": 3.75e-06,
    "cache_creation_input_token_cost_above_1hr": 6e-06, "input_cost_per_audio_token": 1e-05,
    "input_cost_per_image": 0},
  "vast/tiny": {"input_cost_per_token": 1e-13, "output_cost_per_token": 0},
  "one/twin": {"input_cost_per_token": 1e-06}, "two/twin": {"input_cost_per_token": 2e-06}
}"""


def imported(model: str) -> Price | None:
    entry = entry_of(read_list(EXCERPT), model)
    made = None if entry is None else price_of(entry)
    return None if made is None else Price(PriceConfig.model_validate(made))


def test_prices_of_a_list_are_exact() -> None:
    small, long = imported("small-chat"), imported("long-chat")
    assert small is not None
    assert small.cost(1000, 100, 400, 10).picos == 600 * 150_000 + 400 * 75_000 + 90 * 600_000 + 10 * 700_000
    assert long is not None
    assert long.cost(200_000, 1).picos == 200_000 * 3_000_000 + 15_000_000
    assert long.cost(200_001, 1).picos == 200_001 * 6_000_000 + 22_500_000
    assert imported("painter") is None
    assert imported("twin") is None  # of two providers


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "{", "\ud800"])
def test_a_file_that_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(PriceListError):
        read_list(text)


@pytest.mark.parametrize("cost", ["1e-13", "-1", '"free"', "1e7", "true", "[1]", "1e999999", "Infinity", "NaN"])
def test_a_wrong_price_is_refused(cost: str) -> None:
    entries = read_list(f'{{"m": {{"input_cost_per_token": {cost}, "output_cost_per_token": 0}}}}')
    with pytest.raises(PriceListError, match="input_cost_per_token"):
        price_of(entries["m"])


@given(st.dictionaries(
    st.sampled_from(["input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost",
                     "input_cost_per_token_above_128k_tokens", "output_cost_per_token_above_128k_tokens"]),
    st.integers(0, 10**9).map(lambda picos: Decimal(picos).scaleb(-12)),
))  # fmt: skip
def test_every_list_with_whole_picos_is_a_price(entry: dict[str, Any]) -> None:
    made = price_of(entry)
    assert (made is None) == ("input_cost_per_token" not in entry)
    if made is not None:
        picos = Price(PriceConfig.model_validate(made)).cost(1, 0).picos
        assert Decimal(picos).scaleb(-12) == entry["input_cost_per_token"]


def test_the_command_prints_prices(tmp_path: Any) -> None:
    file = tmp_path / "prices.json"
    file.write_text(EXCERPT)
    done = CliRunner().invoke(app, ["prices", "import", str(file), "small-chat", "painter"])
    assert done.exit_code == 0
    line = next(line for line in done.output.splitlines() if line.startswith('"small-chat"'))
    assert line == (
        '"small-chat": {prompt: 0.15 usd/1M, completion: 0.6 usd/1M, cached: 0.075 usd/1M, reasoning: 0.7 usd/1M}'
    )
    assert "painter: the list has no price of tokens." in done.output
    assert CliRunner().invoke(app, ["prices", "import", str(file), "painter"]).exit_code == 1
    assert CliRunner().invoke(app, ["prices", "import", str(file), "vast/tiny"]).exit_code == 2
    assert CliRunner().invoke(app, ["prices", "import", str(tmp_path / "none"), "x"]).exit_code == 2
    file.write_text(json.dumps([]))
    assert CliRunner().invoke(app, ["prices", "import", str(file), "x"]).exit_code == 2
    file.write_text(EXCERPT)
    done = CliRunner().invoke(app, ["prices", "import", str(file), "caching"])
    written = "cache_write: 3.75 usd/1M, cache_write_hour: 6 usd/1M, batch: 50%"
    assert f'"caching": {{prompt: 3 usd/1M, completion: 15 usd/1M, {written}}}' in done.output
    assert "caching: not imported: input_cost_per_audio_token." in done.output


@pytest.mark.parametrize(
    ("prompt", "completion", "share"),
    [
        ("1e-6", "4e-6", "50%"), ("2e-6", "8e-6", "100%"), ("0.5e-6", "2e-6", "25%"), ("2e-9", "8e-9", "0.1%"),
        ("1e-6", "2e-6", None), ("3e-6", "12e-6", None), ("1e-6", None, None), ("1.23456e-6", "4.93824e-6", None),
    ],
)  # fmt: skip
def test_batches_have_a_share_if_it_is_one(prompt: str, completion: str | None, share: str | None) -> None:
    entry: dict[str, Any] = {"input_cost_per_token": Decimal("2e-6"), "output_cost_per_token": Decimal("8e-6")}
    entry["input_cost_per_token_batches"] = Decimal(prompt)
    if completion is not None:
        entry["output_cost_per_token_batches"] = Decimal(completion)
    made = price_of(entry)
    assert made is not None
    assert made.get("batch") == share
    assert unread(entry) == ([] if share else sorted(name for name in entry if name.endswith("_batches")))
    PriceConfig.model_validate(made)


@given(st.integers(1, 10**9))
def test_errors_of_binary_floating_point_are_no_prices(picos: int) -> None:
    for number in (picos * 1e-12, picos / 10**6 * 1e-6, picos / 10**12):
        made = price_of({"input_cost_per_token": Decimal(repr(number))})
        assert made is not None
        assert Price(PriceConfig.model_validate(made)).cost(1, 0).picos == picos


@pytest.fixture(scope="module")
def real_list() -> str:
    """The list of LiteLLM's distribution, without the packages that the distribution needs."""
    folder = add(ensure("price-list", ()), ("litellm==1.106.2",))
    (file,) = folder.glob("lib/python*/site-packages/litellm/model_prices_and_context_window_backup.json")
    return Path(file).read_text(encoding="utf-8")


@pytest.mark.processes
def test_the_real_list_is_read_to_the_last_unit(real_list: str) -> None:
    entries, priced, refused = read_list(real_list), 0, 0
    for name, entry in entries.items():
        try:
            made = price_of(entry)
        except PriceListError:
            refused += 1
            continue
        if made is None:
            assert not entry.get("input_cost_per_token"), name
            continue
        priced += 1
        price = Price(PriceConfig.model_validate(made))
        prompt, completion = entry["input_cost_per_token"], entry.get("output_cost_per_token") or Decimal(0)
        # The list has sums of binary floating point, such as 4.0000000000000003E-7.
        assert price.cost(1000, 0).picos == round(prompt * 10**12, 4) * 1000, name
        assert price.cost(1000, 10).picos == round(prompt * 10**12, 4) * 1000 + round(completion * 10**12, 4) * 10, name
        assert not {"input_cost_per_token", "output_cost_per_token"} & set(unread(entry)), name
    assert priced > 1000
    assert refused == 0
    assert imported_from(entries, "gpt-4o")["batch"] == "50%"
    assert imported_from(entries, "claude-sonnet-4-5")["cache_write"] == "3.75 usd/1M"


def imported_from(entries: Any, model: str) -> dict[str, Any]:
    made = price_of(entries[model])
    assert made is not None
    return made
