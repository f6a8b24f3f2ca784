"""A part of a shared amount, taken in advance so that it can be used without asking."""

CHUNK = 20
"""A lease is filled up to that part of the amount, and may be ahead by as much."""


class Lease:
    """`level` is what is in it, below 0 what it is ahead by: at most a twentieth of the amount, or one request's."""

    __slots__ = ("amount", "level", "most")

    def __init__(self, amount: float) -> None:
        self.amount = amount
        self.most = max(1, amount // CHUNK)
        self.level: float = 0

    def has(self, n: float) -> bool:
        """Whether `n` may be taken."""
        return self.level - n >= -self.most or self.level >= 0

    def take(self, n: float) -> float:
        """Take `n`, of the whole amount at most; what was taken."""
        n = min(n, self.amount)
        self.level -= n
        return n

    def want(self, *, idle: bool) -> float:
        """What to ask for, or below 0 what to give back, which is taken out of it. Idle, it wants to be empty."""
        if idle or self.level > 2 * self.most:
            excess = max(0, self.level - (0 if idle else self.most))
            if excess:
                self.level -= excess
                return -excess
        aim = 0 if idle else self.most
        return max(0, aim - self.level) if self.level < (aim + 1) // 2 else 0
