"""The sums of the records of each process whose usage is counted too, by the labels of usage."""

from collections.abc import Iterable
from typing import Any

from gateway.features.requests.lines import HOUR_MICROS, NUMBERS, PART, RequestLine
from gateway.features.requests.schema import RECORDED
from gateway.features.usage.labels import LABELS

_NAMES = ("process", "hour", *LABELS)


def recorded_sums(source: str, lines: Iterable[RequestLine]) -> list[dict[str, Any]]:
    """One row for each process, hour and set of labels, from lines of one file."""
    added: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in lines:
        if not line.counted:
            continue
        labels = (line.tenant, line.key, line.model, line.arm, line.currency, line.team)
        place = (source.partition("-")[0], line.at // HOUR_MICROS, *labels)
        sums = added.get(place)
        if sums is None:
            sums = added[place] = {**dict(zip(_NAMES, place, strict=True)), **dict.fromkeys(RECORDED, 0)}
        sums["requests"] += line.requests
        sums["picos_high"] += line.billions + line.picos // PART
        sums["picos_low"] += line.picos % PART
        used = dict(zip(NUMBERS, line.usage, strict=True))
        for name in RECORDED[3:]:
            sums[name] += used[name]
    return list(added.values())
