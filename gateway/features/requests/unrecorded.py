"""The requests of an ended process whose records are lost: in memory at its kill, or beyond a full queue or disk.

Usage survives a kill at every moment, records are some hundred milliseconds behind. The difference is stored as one
record for each hour and each set of labels, with the number of requests, so that the records add up to the invoices.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.features.requests.lines import HOUR_MICROS, PART, RequestLine
from gateway.features.usage.labels import LABELS, OTHERS
from policies.globs import GlobSet

_AMOUNTS = ("requests", "picos", "prompt_tokens", "completion_tokens", "rows", "bytes", "device_us")
_KEY, _ARM, _MODEL = LABELS.index("key"), LABELS.index("arm"), LABELS.index("model")
Place = tuple[Any, ...]
"""The hour and the labels of usage."""


def unrecorded(
    counted: Iterable[Mapping[str, Any]], recorded: Iterable[Mapping[str, Any]], excluded: Iterable[str]
) -> list[RequestLine]:
    """Records of the difference between the usage of a process and its records. Models in `excluded` have none."""
    missing: dict[Place, list[int]] = {}
    for row in counted:
        _add(missing, row, [row[name] for name in _AMOUNTS])
    for row in recorded:
        amounts = [row["requests"], row["picos_high"] * PART + row["picos_low"], *(row[name] for name in _AMOUNTS[2:])]
        _add(missing, row, [-amount for amount in amounts])
    globs = GlobSet(tuple(excluded))
    lines = [
        _line(place, amounts)
        for place, amounts in sorted(_merged(missing).items())
        if any(amounts) and place[1 + _MODEL] not in globs
    ]
    return [line for line in lines if line is not None]


def _add(sums: dict[Place, list[int]], row: Mapping[str, Any], amounts: list[int]) -> None:
    place = (row["hour"], *(row[name] for name in LABELS))
    before = sums.get(place)
    sums[place] = amounts if before is None else [a + b for a, b in zip(before, amounts, strict=True)]


def _merged(missing: dict[Place, list[int]]) -> dict[Place, list[int]]:
    """Counters of too many labels share a key: their records have keys of their own, and are compared without them."""
    shared = {_without_key(place) for place, amounts in missing.items() if min(amounts) < 0}
    merged: dict[Place, list[int]] = {}
    for place, amounts in missing.items():
        key = _without_key(place)
        target = key if key in shared else place
        before = merged.get(target, [0] * len(_AMOUNTS))
        merged[target] = [a + b for a, b in zip(before, amounts, strict=True)]
    return merged


def _without_key(place: Place) -> Place:
    labels = list(place[1:])
    labels[_KEY], labels[_ARM] = OTHERS, ""
    return (place[0], *labels)


def _line(place: Place, amounts: list[int]) -> RequestLine | None:
    """One record for all; None if there are more records than usage, as after an end of its retention."""
    if min(amounts) < 0:
        return None
    hour, (tenant, key, model, arm, currency, team) = place[0], place[1:]
    requests, picos, prompt, completion, rows, size, device = amounts
    billions, picos = divmod(picos, PART)
    if billions < PART:
        billions, picos = 0, billions * PART + picos
    return RequestLine(
        at=hour * HOUR_MICROS,
        id="",
        tenant=tenant,
        key=key,
        model=model,
        operation="unrecorded",
        pool="",
        arm=arm,
        status=0,
        error="",
        code="",
        currency=currency,
        endpoint="",
        trace="",
        stream=False,
        duration=0,
        first_chunk=-1,
        picos=picos,
        usage=(prompt, completion, 0, 0, rows, size, device),
        detail=f'{{"unrecorded":{requests}}}',
        team=team,
        billions=billions,
        requests=requests,
    )
