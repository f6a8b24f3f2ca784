"""The units of rates, in a fixed order.

Amounts are a plain tuple in that order. Every request has two: its reservation and its usage.
"""

from typing import Literal, get_args

Rated = Literal["requests", "tokens", "rows", "bytes", "device_ms"]
RATED: tuple[Rated, ...] = get_args(Rated)
Amounts = tuple[float, float, float, float, float]
TOKENS = RATED.index("tokens")
NOTHING: Amounts = (0, 0, 0, 0, 0)
