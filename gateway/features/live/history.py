"""The figures of past minutes as columns, one value for each minute."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gateway.features.live.rates import largest_of, rates_of
from gateway.telemetry.figures import Dimension, Figures, FigureSet
from gateway.telemetry.recent import MINUTE

MOST_SERIES = 6
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_NONE = Figures()


def sums_of(rows: Iterable[tuple[int, str]]) -> dict[int, FigureSet]:
    """The sums of each minute of several replicas, from their JSON."""
    sums: dict[int, FigureSet] = {}
    for minute, text in rows:
        sums.setdefault(minute, FigureSet()).add(FigureSet.read(_decode(text)))
    return sums


def columns_of(sums: Mapping[int, FigureSet], first: int, end: int, by: Dimension | None) -> dict[str, Any]:
    """The minutes from `first` to before `end`: the series of all requests, or of the largest names of a dimension.

    A minute without figures had no request, or no replica was there.
    """
    begin = max(first, min(sums, default=end))
    places = range(begin, end)
    if by is None:
        named = {"": {minute: each.all for minute, each in sums.items()}}
    else:
        totals: dict[str, Figures] = {}
        for each in sums.values():
            for name, figures in each.named[by].items():
                totals.setdefault(name, Figures()).requests += figures.requests
        largest = [name for name, _ in largest_of(totals, MOST_SERIES)]
        named = {name: {minute: each.named[by].get(name, _NONE) for minute, each in sums.items()} for name in largest}
    series = [
        {"name": name, **_columns([rates_of(of.get(minute, _NONE), MINUTE) for minute in places])}
        for name, of in named.items()
    ]
    return {"from": begin * MINUTE, "step": MINUTE, "length": len(places), "series": series}


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    currencies = {currency for row in rows for currency in row["money"]}
    columns = {name: [row[name] for row in rows] for name in rates_of(_NONE, MINUTE) if name != "money"}
    money = {currency: [row["money"].get(currency, 0) for row in rows] for currency in sorted(currencies)}
    return {**columns, "money": money}
