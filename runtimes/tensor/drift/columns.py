"""The columns of a reference: one for each feature, one value for each row."""

from __future__ import annotations

import csv
import io
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from config.installing import installing
from runtimes.tensor.drift.sketches import Floats
from runtimes.tensor.interfaces import ModelLoadError

MAX_BYTES: Final = 256 << 20
"""Bytes of a reference, when it is unpacked."""
MAX_COLUMNS: Final = 1000
_WORDS: Final = {"": np.nan, "nan": np.nan, "null": np.nan, "none": np.nan, "true": 1.0, "false": 0.0}


class Column:
    """The values of one feature, as texts or as an array."""

    def __init__(self, values: Sequence[str] | Any) -> None:
        self._values = values

    def numbers(self) -> Floats | None:
        """The values as numbers, NaN for those that are missing; None if one is not a number."""
        values = self._values
        try:
            if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
                return values.astype(np.float64)
            return np.array([_number(value) for value in values], np.float64)
        except (ValueError, TypeError):
            return None

    def labels(self) -> dict[bytes, float]:
        """How often each value occurs, as a text."""
        values = self._values.tolist() if isinstance(self._values, np.ndarray) else self._values
        return dict(Counter(_label(value) for value in values))


def _number(value: Any) -> float:
    if isinstance(value, str):
        word = value.strip().lower()
        return _WORDS[word] if word in _WORDS else float(word)
    return np.nan if value is None else float(value)


def _label(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return ("" if value is None else str(value)).encode(errors="replace")


def read_columns(path: Path) -> Mapping[str, Column]:
    """The columns of a CSV, NPZ or Parquet file, by name, in order. Blocks for the disk. Raises `ModelLoadError`."""
    read = _READERS.get(path.suffix)
    if read is None:
        raise refused(path, f"expected a file of these kinds: {', '.join([*_READERS, '.json'])}")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise refused(path, f"is larger than {MAX_BYTES >> 20} MiB: take a sample of its rows")
        columns = read(path)
    except OSError as error:
        raise refused(path, f"cannot be read: {error.strerror or error}") from None
    if not columns or len(columns) > MAX_COLUMNS:
        raise refused(path, f"has {len(columns)} columns, and may have 1 to {MAX_COLUMNS}")
    return columns


def refused(path: Path, message: str) -> ModelLoadError:
    """The error of a reference."""
    return ModelLoadError(f"drift.reference: {path.name}{'' if message.startswith(':') else ': '}{message}")


def _csv(path: Path) -> dict[str, Column]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise refused(path, "is not UTF-8 text") from None
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        header = next(rows, [])
        twice = next((name for name, count in Counter(header).items() if count > 1), None)
        if twice is not None:
            raise refused(path, f":1: two columns are named {twice[:64]}")
        columns: list[list[str]] = [[] for _ in header]
        for row in rows:
            if not row:
                continue  # an empty line
            if len(row) != len(header):
                raise refused(path, f":{rows.line_num}: has {len(row)} values, and the header {len(header)}")
            for column, value in zip(columns, row, strict=True):
                column.append(value)
    except csv.Error as error:
        raise refused(path, f":{rows.line_num}: {error}") from None
    return _filled(path, {name: Column(values) for name, values in zip(header, columns, strict=True)}, columns)


def _npz(path: Path) -> dict[str, Column]:
    try:
        with zipfile.ZipFile(path) as packed:
            if sum(entry.file_size for entry in packed.infolist()) > MAX_BYTES:
                raise refused(path, f"is larger than {MAX_BYTES >> 20} MiB: take a sample of its rows")
        with np.load(path, allow_pickle=False) as arrays:
            return _columns(path, {name: arrays[name] for name in arrays.files})
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile):
        raise refused(path, "is not an archive of arrays of numbers or texts, as numpy.savez writes it") from None


def _columns(path: Path, arrays: Mapping[str, Any]) -> dict[str, Column]:
    """One column for each element of a row."""
    columns: dict[str, Column] = {}
    for name, array in arrays.items():
        if array.ndim == 0 or array.dtype.kind not in "biufSU":
            raise refused(path, f"{name[:64]} is not an array of numbers or texts with a row for each example")
        flat = array.reshape(len(array), -1)
        if flat.shape[1] + len(columns) > MAX_COLUMNS:
            raise refused(path, f"has more than {MAX_COLUMNS} columns: leave out {name[:64]}")
        single = array.ndim == 1
        columns |= {name if single else f"{name}[{i}]": Column(flat[:, i]) for i in range(flat.shape[1])}
    return _filled(path, columns, list(arrays.values()))


def _parquet(path: Path) -> dict[str, Column]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise refused(path, f"Parquet needs an extra: {installing('parquet')}") from None
    try:
        size = pyarrow.parquet.read_metadata(path)
        if sum(size.row_group(at).total_byte_size for at in range(size.num_row_groups)) > MAX_BYTES:
            raise refused(path, f"is larger than {MAX_BYTES >> 20} MiB: take a sample of its rows")
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise refused(path, f"is not Parquet: {str(error)[:200]}") from None
    values = {name: table.column(at).to_pylist() for at, name in enumerate(table.column_names)}
    return _filled(path, {name: Column(column) for name, column in values.items()}, list(values.values()))


def _filled(path: Path, columns: dict[str, Column], values: Sequence[Any]) -> dict[str, Column]:
    if not values or not all(len(column) for column in values):
        raise refused(path, "has no rows")
    return columns


_READERS: Final[Mapping[str, Callable[[Path], dict[str, Column]]]] = {
    ".csv": _csv, ".npz": _npz, ".parquet": _parquet,
}  # fmt: skip
