"""FOCUS as Parquet: the columns of the CSV file with the types of the specification. Money is an exact decimal."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from config.installing import installing
from gateway.features.usage.export import FOCUS, charges_of

if TYPE_CHECKING:
    import pyarrow

_ROWS = 10_000
"""Rows of one group: the memory of an export is bounded."""
_MONEY = frozenset({"BilledCost", "ContractedCost", "EffectiveCost", "ListCost"})
_TIMES = frozenset({"BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart"})
_QUANTITIES = frozenset({"ConsumedQuantity", "PricingQuantity"})


class ParquetMissing(Exception):
    """The optional package is not installed."""


def write_focus(rows: Iterable[Mapping[str, Any]], file: IO[bytes]) -> None:
    """Write rows by tenant, key, model, arm, team and day as a FOCUS file. Raises `ParquetMissing` and `OSError`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ParquetMissing(f"Parquet needs an extra: {installing('parquet')}") from None
    schema = _schema(pyarrow)
    charges = charges_of(rows)
    with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(islice(charges, _ROWS)):
            columns = [[_value(name, charge.get(name)) for charge in group] for name in FOCUS]
            arrays = [pyarrow.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            writer.write_batch(pyarrow.RecordBatch.from_arrays(arrays, schema=schema))


def _schema(pyarrow: Any) -> "pyarrow.Schema":
    types = {
        **dict.fromkeys(_MONEY, pyarrow.decimal128(38, 12)),
        **dict.fromkeys(_TIMES, pyarrow.timestamp("us", "UTC")),
        **dict.fromkeys(_QUANTITIES, pyarrow.decimal128(38, 12)),
    }
    fields = [(name, types.get(name, pyarrow.int64() if name in _counts() else pyarrow.string())) for name in FOCUS]
    return pyarrow.schema(fields)


def _counts() -> Iterator[str]:
    return (name for name in FOCUS if name.startswith("x_") and name != "x_Arm")


def _value(name: str, value: Any) -> Any:
    if value is None or value == "":
        return None
    if name in _MONEY or name in _QUANTITIES:
        return Decimal(value)
    return datetime.fromisoformat(value) if name in _TIMES else value
