"""A reference of histograms, for data that may not lie beside the model.

{"features": {
  "age":  {"edges": [18, 30, 45, 60], "counts": [0, 120, 310, 270, 90]},
  "city": {"counts": {"Rome": 410, "Oslo": 380}}
}}

Counts of numbers are those up to each edge, and then those above the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from runtimes.tensor.drift.columns import MAX_COLUMNS, refused
from runtimes.tensor.drift.sketches import Sketch, labels_of, numbers_in

MAX_BYTES = 16 << 20
MAX_BINS = 1000


class _Histogram(msgspec.Struct, forbid_unknown_fields=True):
    counts: list[float] | dict[str, float]
    edges: list[float] | None = None


class _Histograms(msgspec.Struct, forbid_unknown_fields=True):
    features: dict[str, _Histogram]


def read_histograms(path: Path) -> Mapping[str, Sketch]:
    """The sketch of each feature. Blocks for the disk. Raises `ModelLoadError`."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise refused(path, f"is larger than {MAX_BYTES >> 20} MiB")
        read = msgspec.json.decode(content, type=_Histograms)
    except OSError as error:
        raise refused(path, f"cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise refused(path, f"{error}") from None
    if not 0 < len(read.features) <= MAX_COLUMNS:
        raise refused(path, f"has {len(read.features)} features, and may have 1 to {MAX_COLUMNS}")
    return {name: _sketch(path, name[:64], one) for name, one in read.features.items()}


def _sketch(path: Path, name: str, histogram: _Histogram) -> Sketch:
    counts: Any = histogram.counts
    values = list(counts.values()) if isinstance(counts, dict) else counts
    if not 0 < sum(values) < 2**53 or min(values) < 0:
        raise refused(path, f"the counts of {name} must be numbers from 0, and some above 0")
    if isinstance(counts, dict):
        if histogram.edges is not None:
            raise refused(path, f"{name} has labels, which have no edges")
        return labels_of({label.encode(errors="replace"): count for label, count in counts.items()})
    edges = np.array(histogram.edges or [], np.float64)
    if len(edges) >= MAX_BINS or len(counts) != len(edges) + 1 or not np.all(np.diff(edges) > 0):
        raise refused(path, f"{name} needs rising edges, at most {MAX_BINS - 1}, and one count more than edges")
    return numbers_in(edges, np.array([*counts, 0.0]))
