"""The figures of past minutes as columns, one value for each minute."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from gateway.features.live.rates import largest_of, rates_of
from gateway.telemetry.figures import DIMENSIONS, MOST_NAMES, NUMBERS, OTHERS, Dimension, Figures
from gateway.telemetry.recent import MINUTE

MOST_SERIES = 6
WHOLE = ""
"""The name of all requests."""
_NONE = rates_of(Figures(), MINUTE)
_read_picos = msgspec.json.Decoder(dict[str, int]).decode
_read_counts = msgspec.json.Decoder(dict[int, int]).decode
_NOTHING = msgspec.Raw(b"{}")


class _Stored(msgspec.Struct, frozen=True, gc=False):
    """What `Figures.describe` has written, and a name."""

    name: str = WHOLE
    requests: int = 0
    failures: int = 0
    refused: int = 0
    tokens: int = 0
    rows: int = 0
    picos: msgspec.Raw = _NOTHING
    durations: msgspec.Raw = _NOTHING
    first_chunks: msgspec.Raw = _NOTHING

    def add_to(self, sums: Figures) -> None:
        """Add these sums to others. A page reads hundreds of thousands of counts, so none has a call of its own."""
        for name in NUMBERS:
            setattr(sums, name, getattr(sums, name) + getattr(self, name))
        pairs: tuple[tuple[dict[Any, int], dict[Any, int]], ...] = (
            (sums.picos, _read_picos(self.picos)),
            (sums.durations, _read_counts(self.durations)),
            (sums.first_chunks, _read_counts(self.first_chunks)),
        )
        for whole, counts in pairs:
            if not whole:
                dict.update(whole, counts)
                continue
            for key, count in counts.items():
                whole[key] = whole.get(key, 0) + count


class NamedMinute:
    """A name in one minute. A chart shows few names: only of those the counts are decoded, and once."""

    __slots__ = ("_parts", "_rates", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self._parts: list[_Stored] = []
        self._rates: dict[str, Any] | None = None

    def add(self, stored: _Stored) -> None:
        """Add what a replica has stored, before the first `rates`."""
        self.requests += stored.requests
        texts = {name: getattr(stored, name).copy() for name in ("picos", "durations", "first_chunks")}
        self._parts.append(msgspec.structs.replace(stored, **texts))  # a text alone does not hold its whole row

    def rates(self) -> dict[str, Any]:
        """What happened a second. Several threads may call it."""
        parts = self._parts
        if self._rates is not None:
            return self._rates
        sums = Figures()
        for each in parts:
            each.add_to(sums)
        self._rates = made = rates_of(sums, MINUTE)
        self._parts = []
        return made


Sums = dict[str, NamedMinute]
"""One minute by name."""


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
            of.setdefault(name, NamedMinute()).add(stored)
    return sums


def columns_of(sums: Mapping[int, Sums], first: int, end: int, by: Dimension | None) -> dict[str, Any]:
    """The minutes from `first` to before `end` as series: all requests, or the largest names.

    A minute without figures had no request, or no replica was there.
    """
    sums = {minute: of for minute, of in sums.items() if first <= minute < end}
    begin = min(sums, default=end)
    places = range(begin, end)
    totals: Sums = {WHOLE: NamedMinute()} if by is None else {}
    for each in sums.values():
        for name, figures in each.items():
            totals.setdefault(name, NamedMinute()).requests += figures.requests
    series = []
    for name, _ in largest_of(totals, MOST_SERIES):
        minutes = (sums.get(minute, {}).get(name) for minute in places)
        series.append({"name": name, **_columns([_NONE if each is None else each.rates() for each in minutes])})
    return {"from": begin * MINUTE, "step": MINUTE, "length": len(places), "series": series}


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    currencies = {currency for row in rows for currency in row["money"]}
    columns = {name: [row[name] for row in rows] for name in _NONE if name != "money"}
    money = {currency: [row["money"].get(currency, 0) for row in rows] for currency in sorted(currencies)}
    return {**columns, "money": money}
