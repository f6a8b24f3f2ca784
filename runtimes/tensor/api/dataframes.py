"""The bodies of MLflow's `/invocations`, as the rows of KServe's v1.

A table names its columns. They must be the model's inputs, or a table without names is the rows of a model with one
input: names that the model does not have would be joined in an order that nobody checked.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import Any, Final

from adapters.errors import CallerError
from adapters.wire.oip.bodies import ModelMetadata
from adapters.wire.oip.json_data import FLOATS
from adapters.wire.tfserving.predict_v1 import PredictV1Request, object_of, predict_of

SPLIT: Final = "dataframe_split"
RECORDS: Final = "dataframe_records"
_KINDS: Final = (SPLIT, RECORDS, "instances", "inputs")


def decode_json(body: bytes, model: ModelMetadata) -> PredictV1Request:
    """Decode one of MLflow's four forms, with `params`; `parameters` is Vertex AI's name. Raises `CallerError`."""
    fields = object_of(body)
    given = [kind for kind in _KINDS if kind in fields]
    if len(given) != 1:
        raise CallerError(f"Send exactly one of {', '.join(f'`{kind}`' for kind in _KINDS)}.")
    more: dict[str, Any] = {name: fields[name] for name in ("parameters", "signature_name") if name in fields}
    if "params" in fields:
        more["parameters"] = fields["params"]
    if given[0] == SPLIT:
        return predict_of({**more, "instances": _split(fields[SPLIT], model)}, model)
    if given[0] == RECORDS:
        return predict_of({**more, "instances": _records(fields[RECORDS], model)}, model)
    return predict_of({**more, given[0]: fields[given[0]]}, model)


def decode_csv(body: bytes, model: ModelMetadata, *, header: bool) -> PredictV1Request:
    """Decode CSV, whose first line names the columns if it has a `header`. Raises `CallerError`."""
    try:
        lines = [line for line in csv.reader(io.StringIO(body.decode(), newline=""), strict=True) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise CallerError(f"The body is not CSV in UTF-8: {error}.") from None
    names = lines[0] if lines and header else []
    rows = lines[1:] if header else lines
    if header and not set(names) & {declared.name for declared in model.inputs}:
        raise CallerError(
            f"The first line of the CSV names no input of the model. It has: {_inputs(model)}. Without such a line send"
            " `content-type: text/csv; header=absent`."
        )
    kinds = {declared.name: declared.datatype for declared in model.inputs}
    only = model.inputs[0].datatype if len(model.inputs) == 1 else ""
    by_column = [kinds.get(name, "BYTES") for name in names]
    typed = [
        [_cell(text, kind) for text, kind in zip(row, by_column or [only] * len(row), strict=False)]
        if not names or len(row) == len(names)
        else row
        for row in rows
    ]
    return predict_of({"instances": _table(names, typed, model)}, model)


def _split(table: Any, model: ModelMetadata) -> list[Any]:
    if not isinstance(table, dict) or not isinstance(table.get("data"), list):
        raise CallerError(f"`{SPLIT}` must be an object with `data`, a list of rows.", param=SPLIT)
    columns = table.get("columns") or []
    if not isinstance(columns, list) or any(type(name) not in (str, int) for name in columns):
        raise CallerError(f"`columns` of `{SPLIT}` must be a list of names.", param=SPLIT)
    if columns == list(range(len(columns))):  # what pandas calls columns that have no names
        columns = []
    return _table([str(name) for name in columns], table["data"], model)


def _records(records: Any, model: ModelMetadata) -> list[Any]:
    if not isinstance(records, list) or not records or any(not isinstance(one, dict) for one in records):
        raise CallerError(f"`{RECORDS}` must be a list of objects, one or more.", param=RECORDS)
    names = dict.fromkeys(name for one in records for name in one)
    return _named(names, records, model)


def _table(names: Sequence[str], rows: Sequence[Any], model: ModelMetadata) -> list[Any]:
    if not rows:
        raise CallerError("The table has no rows.")
    for number, row in enumerate(rows):
        if not isinstance(row, list) or (names and len(row) != len(names)):
            raise CallerError(f"Row {number} of the table must be a list with a value for each column.")
    if names:
        if len(set(names)) < len(names):
            raise CallerError("Two columns of the table have the same name.")
        return _named(names, [dict(zip(names, row, strict=True)) for row in rows], model)
    if len(model.inputs) != 1:
        raise CallerError(f"Name the columns: this model has the inputs {_inputs(model)}.")
    kind = model.inputs[0].datatype
    return [[_number(value, kind) for value in row] for row in rows]


def _named(names: Iterable[str], rows: Sequence[Mapping[str, Any]], model: ModelMetadata) -> list[Any]:
    """Rows by the model's inputs. Other columns are left out, as MLflow does."""
    there = set(names)
    used = [declared for declared in model.inputs if declared.name in there]
    if not used:
        raise CallerError(
            f"No column of the table is an input of the model. It has: {_inputs(model)}. A model with one input takes"
            f" rows without names: `instances`, or `{SPLIT}` without `columns`."
        )
    return [{one.name: _number(row.get(one.name), one.datatype) for one in used} for row in rows]


def _number(value: Any, datatype: str) -> Any:
    """A missing number is NaN in pandas, and null in its JSON."""
    return nan if value is None and datatype in FLOATS else value


def _cell(text: str, datatype: str) -> Any:
    if datatype == "BYTES":
        return text
    if text == "":
        return None
    if datatype == "BOOL":
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return float(text) if datatype in FLOATS else int(text)
    except ValueError:
        return text  # the decoder of tensors refuses it, with the name of the input


def _inputs(model: ModelMetadata) -> str:
    return ", ".join(declared.name for declared in model.inputs)
