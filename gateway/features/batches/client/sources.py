"""Lines of a batch from a file: JSONL in OpenAI's form, or rows of CSV or Parquet with a prompt template."""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from config.installing import installing
from policies.batches.lines import is_endpoint

CHAT = "/v1/chat/completions"
_COLUMN = re.compile(r"\{([^{}]+)\}")


class InputError(Exception):
    """The input cannot be read. The message is for the user."""


class InputLine(NamedTuple):
    """One request."""

    custom_id: str
    url: str
    body: dict[str, Any]


class RowMapping(NamedTuple):
    """How a row of a table becomes a request. `fields` are columns by fields of the body."""

    prompt: str
    id: str | None
    fields: Mapping[str, str]
    system: str | None = None


def lines_of(path: Path, model: str | None, rows: RowMapping | None) -> Iterator[InputLine]:
    """The lines of a file, by the end of its name. `model` replaces the model of each line. Raises `InputError`."""
    if path.suffix in (".csv", ".parquet"):
        if rows is None or model is None:
            raise InputError(f"{path}: rows need --prompt and --model")
        table = _csv(path) if path.suffix == ".csv" else _parquet(path)
        lines: Iterator[InputLine] = (_of_row(path, number, row, rows, model) for number, row in enumerate(table, 1))
    else:
        lines = _jsonl(path, model)
    seen = set[str]()
    for line in lines:
        if line.custom_id in seen:
            raise InputError(f"{path}: the id {line.custom_id!r} occurs twice")
        seen.add(line.custom_id)
        yield line


def _jsonl(path: Path, model: str | None) -> Iterator[InputLine]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            where = f"{path}, line {number}"
            try:
                line = json.loads(raw)
                custom_id, url, body = line["custom_id"], line["url"], dict(line["body"])
            except (ValueError, KeyError, TypeError):
                raise InputError(f"{where}: expected an object with custom_id, url and body") from None
            if not isinstance(custom_id, str) or not isinstance(url, str) or not is_endpoint(url):
                raise InputError(f"{where}: custom_id is a text, and url a path such as {CHAT}")
            if body.get("stream"):
                raise InputError(f"{where}: a batch has no streams")
            yield InputLine(custom_id, url, body if model is None else {**body, "model": model})


def _of_row(path: Path, number: int, row: Mapping[str, Any], mapping: RowMapping, model: str) -> InputLine:
    def column(name: str) -> Any:
        if name not in row:
            raise InputError(f"{path}: there is no column {name!r}; the columns are {', '.join(map(str, row))}")
        return row[name]

    def filled(template: str) -> str:
        return _COLUMN.sub(lambda match: str(column(match[1])), template)

    messages = [{"role": "system", "content": filled(mapping.system)}] if mapping.system else []
    messages.append({"role": "user", "content": filled(mapping.prompt)})
    fields = {field: _value(column(name)) for field, name in mapping.fields.items()}
    custom_id = f"row-{number}" if mapping.id is None else str(column(mapping.id))
    return InputLine(custom_id, CHAT, {"model": model, "messages": messages, **fields})


def _value(value: Any) -> Any:
    """A value of a column; a text of CSV that is a JSON number or boolean becomes that."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            return value
        return parsed if isinstance(parsed, int | float | bool) else value
    return value


def _csv(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        try:
            for row in reader:
                if None in row:
                    raise InputError(f"{path}, line {reader.line_num}: the row has more fields than the header")
                yield row
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path}, line {reader.line_num}: {error}") from None


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise InputError(f"Parquet needs an extra: {installing('parquet')}") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(1024):
                yield from batch.to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{path}: {error}") from None
