"""Intended differences of our runtime, and of our gateway before it, from Triton: `differences.yaml`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.servers.cases import CASES
from tests.servers.comparison import Difference

_WRITTEN: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def _read(rows: Sequence[dict[str, Any]]) -> Iterator[Difference]:
    for row in rows:
        each = {name: [status] * len(CASES[name]) for status, names in row.pop("every", {}).items() for name in names}
        yield Difference(**{**row, "cases": {**each, **row.get("cases", {})}})


DIFFERENCES: Sequence[Difference] = list(_read(_WRITTEN["runtime"]))
AT_THE_GATEWAY: Sequence[Difference] = list(_read(_WRITTEN["gateway"]))
REFUSED: Sequence[str] = _WRITTEN["refused"]
