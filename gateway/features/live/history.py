"""The figures of past minutes as columns, one value for each minute."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec

from gateway.features.live.rates import largest_of, rates_of
from gateway.telemetry.figures import DIMENSIONS, MOST_NAMES, NUMBERS, OTHERS, Dimension, Figures
from gateway.telemetry.recent import MINUTE

MOST_SERIES = 6
WHOLE = ""
"""The name of all requests."""
_NONE = Figures()
Sums = dict[str, Figures]
"""The sums of one minute by name."""


class _Stored(msgspec.Struct, frozen=True, gc=False):
    """What `Figures.describe` has written, and a name."""

    name: str = WHOLE
    requests: int = 0
    failures: int = 0
    refused: int = 0
    tokens: int = 0
    rows: int = 0
    picos: dict[str, int] = {}
    durations: dict[int, int] = {}
    first_chunks: dict[int, int] = {}

    def add_to(self, sums: Figures) -> None:
        """Add these sums to others. A page reads hundreds of thousands of counts, so none has a call of its own."""
        for name in NUMBERS:
            setattr(sums, name, getattr(sums, name) + getattr(self, name))
        pairs = (sums.picos, self.picos), (sums.durations, self.durations), (sums.first_chunks, self.first_chunks)
        for whole, counts in cast(Iterable[tuple[dict[Any, int], dict[Any, int]]], pairs):
            if not whole:
                dict.update(whole, counts)
                continue
            for key, count in counts.items():
                whole[key] = whole.get(key, 0) + count


# A minute has all dimensions. What a chart does not show is skipped, and not decoded: that is most of it.
_readers: dict[Dimension, Callable[[str], Any]] = {
    by: msgspec.json.Decoder(msgspec.defstruct("Minute", [("of", list[_Stored], [])], rename={"of": by})).decode
    for by in DIMENSIONS
}
_read_whole: Callable[[str], Any] = msgspec.json.Decoder(
    msgspec.defstruct("Minute", [("all", _Stored, _Stored())])
).decode


def sums_of(rows: Iterable[tuple[int, str]], by: Dimension | None) -> dict[int, Sums]:
    """The sums of each minute of several replicas, from their JSON: of all requests, or of each name of a dimension."""
    sums: dict[int, Sums] = {}
    for minute, text in rows:
        of = sums.setdefault(minute, {})
        for stored in [_read_whole(text).all] if by is None else _readers[by](text).of:
            name = stored.name if stored.name in of or len(of) < MOST_NAMES else OTHERS
            stored.add_to(of.setdefault(name, Figures()))
    return sums


def columns_of(sums: Mapping[int, Sums], first: int, end: int, by: Dimension | None) -> dict[str, Any]:
    """The minutes from `first` to before `end` as series: all requests, or the largest names.

    A minute without figures had no request, or no replica was there.
    """
    begin = max(first, min(sums, default=end))
    places = range(begin, end)
    totals: Sums = {WHOLE: Figures()} if by is None else {}
    for each in sums.values():
        for name, figures in each.items():
            totals.setdefault(name, Figures()).requests += figures.requests
    named = [name for name, _ in largest_of(totals, MOST_SERIES)]
    series = [
        {"name": name, **_columns([rates_of(sums.get(minute, {}).get(name, _NONE), MINUTE) for minute in places])}
        for name in named
    ]
    return {"from": begin * MINUTE, "step": MINUTE, "length": len(places), "series": series}


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    currencies = {currency for row in rows for currency in row["money"]}
    columns = {name: [row[name] for row in rows] for name in rates_of(_NONE, MINUTE) if name != "money"}
    money = {currency: [row["money"].get(currency, 0) for row in rows] for currency in sorted(currencies)}
    return {**columns, "money": money}
