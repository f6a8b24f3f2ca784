"""What requests are counted in: the units of a rate, in one order.

An amount of each is a plain tuple in that order: every request has two, what it may use and what it did.
"""

from typing import Literal, get_args

Rated = Literal["requests", "tokens", "rows", "bytes", "device_ms"]
RATED: tuple[Rated, ...] = get_args(Rated)
Amounts = tuple[float, float, float, float, float]
TOKENS = RATED.index("tokens")
NOTHING: Amounts = (0, 0, 0, 0, 0)
