"""A part of a shared amount, leased in advance so that requests use it without a round trip."""

CHUNK = 20
"""A lease holds up to 1/CHUNK of the amount, and its overdraft has the same limit."""


class Lease:
    """`level` is the leased amount; below 0, the overdraft: at most 1/CHUNK of the amount, or one request."""

    __slots__ = ("amount", "level", "most")

    def __init__(self, amount: float) -> None:
        self.amount = amount
        self.most = max(1, amount // CHUNK)
        self.level: float = 0

    def has(self, n: float) -> bool:
        """Whether `take(n)` is allowed."""
        return self.level - n >= -self.most or self.level >= 0

    def take(self, n: float) -> float:
        """Take `n`, at most the whole amount. Returns the taken amount."""
        n = min(n, self.amount)
        self.level -= n
        return n

    def demand(self, *, idle: bool) -> float:
        """The amount to request; below 0, the amount to return, taken out at once. An idle lease returns all."""
        if idle or self.level > 2 * self.most:
            excess = max(0, self.level - (0 if idle else self.most))
            if excess:
                self.level -= excess
                return -excess
        aim = 0 if idle else self.most
        return max(0, aim - self.level) if self.level < (aim + 1) // 2 else 0
