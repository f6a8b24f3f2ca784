"""FOCUS as Parquet: the same charges as the CSV file, and their sum is that of the ledger to the last unit."""

import asyncio
import csv
import io
import sys
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from config.schema.money import PICOS
from gateway.auth.pepper import load_pepper
from gateway.auth.terminal import settings_of
from gateway.features.journal.files import WaitingFiles
from gateway.features.journal.folders import usage_folder
from gateway.features.usage.cli import app
from gateway.features.usage.export import FOCUS, focus_of
from gateway.features.usage.parquet import ParquetMissing, write_focus
from gateway.features.usage.writer import UsageWriter
from tests.support.usage_hosts import NOVEMBER, counting, record

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=20).filter(
    lambda text: text == text.strip() and text[:1] not in "=+-@\t"
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "day": st.dates().map(
                lambda day: day.replace(year=2000 + day.year % 100, day=min(day.day, 28)).isoformat()
            ),
            "tenant": texts,
            "key": texts,
            "model": texts,
            "arm": texts,
            "team": texts,
            "currency": st.sampled_from(["usd", "idr", ""]),
            "picos": st.integers(0, 10**30),
            **{name: st.integers(0, 2**62) for name in ("requests", "failures", "prompt_tokens", "rows")},
            "completion_tokens": st.integers(0, 2**62),
        }
    ),
    max_size=30,
)


def read(data: bytes) -> list[dict[str, Any]]:
    return list(pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist())


@settings(max_examples=30, deadline=None)
@given(rows)
def test_both_forms_have_the_same_charges(made: list[dict[str, Any]]) -> None:
    output = io.BytesIO()
    write_focus(iter(made), output)
    typed = read(output.getvalue())
    plain = list(csv.DictReader(io.StringIO(focus_of(made), newline="")))
    assert len(typed) == len(plain) == sum(bool(row["currency"]) for row in made)
    for currency in ("USD", "IDR"):
        costs = [row["BilledCost"] for row in typed if row["BillingCurrency"] == currency]
        with localcontext(prec=60):
            assert sum(costs, Decimal(0)) * PICOS == sum(r["picos"] for r in made if r["currency"] == currency.lower())
    for of_parquet, of_csv in zip(typed, plain, strict=True):
        assert list(of_parquet) == list(of_csv) == list(FOCUS)
        for name, text in of_csv.items():
            value = of_parquet[name]
            if name.endswith(("Cost", "Quantity")):
                assert value == Decimal(text), name
            elif "Period" in name:
                assert value.isoformat().replace("+00:00", "Z") == text, name
            else:
                assert ("" if value is None else str(value)) == text, name


def test_the_command_writes_a_whole_file_or_none(tmp_path: Path) -> None:
    file, out = tmp_path / "headrace.yaml", tmp_path / "out.parquet"
    file.write_text(
        f'version: 1\nstate: {{database: "sqlite:///{tmp_path}/state/state.db"}}\nusage: {{}}\n'
        "pools: [{name: pool, endpoints: [http://127.0.0.1:9]}]\n"
        'models: [{name: m, routes: [{to: pool}]}]\ntenants: [{name: acme, models: ["*"]}]\n'
    )
    configured = settings_of(file)
    counter = counting(usage_folder(configured))
    for n in range(5):
        counter.put(record(at=NOVEMBER + n * 86400, picos=7 * 10**12 + n, team="search"))
    counter.close()
    writer = UsageWriter(lambda: configured, lambda: load_pepper(configured), WaitingFiles(lambda: configured))
    asyncio.run(writer.aclose())
    arguments = ["export", "--config", str(file), "--from", "2026-11-01", "--to", "2026-12-01", "--parquet"]
    result = CliRunner().invoke(app, [*arguments, str(out)])
    assert result.exit_code == 0, result.output
    charges = read(out.read_bytes())
    assert sum(charge["BilledCost"] for charge in charges) * PICOS == 35 * 10**12 + 10
    assert {charge["Tags"] for charge in charges} == {'{"team": "search"}'}
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "absent" / "out.parquet")])
    assert result.exit_code == 1
    assert "No such file" in result.output
    assert not list(tmp_path.glob("**/*.new"))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ParquetMissing, match=r"\[parquet\]"):
        write_focus([], io.BytesIO())
