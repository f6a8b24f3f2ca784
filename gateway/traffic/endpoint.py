"""One server address: what is known of its health, and how many requests it has."""

from typing import Literal

from adapters.base import Adapter
from adapters.errors import InferenceError
from policies.breaker import Breaker

Health = Literal["unknown", "healthy", "unhealthy"]


class Endpoint:
    """Outlives reloads, so that a new configuration does not forget who is ill.

    `health` is what probes say; the breaker is what traffic says.
    """

    __slots__ = ("_bad", "_good", "adapter", "breaker", "health", "id", "in_flight", "probe_error", "weight")

    def __init__(self, id_: str, adapter: Adapter, breaker: Breaker, weight: float = 1.0) -> None:
        self.id = id_
        self.adapter = adapter
        self.breaker = breaker
        self.weight = weight
        self.in_flight = 0
        self.health: Health = "unknown"
        self.probe_error = ""
        self._good = 0
        self._bad = 0

    def begin(self, now: float) -> None:
        """A request was given to it."""
        self.in_flight += 1
        self.breaker.begin(now)

    def end(self, error: BaseException | None, now: float) -> None:
        """That request is over. Only what the endpoint is to blame for counts against it."""
        self.in_flight -= 1
        if error is None:
            self.breaker.success(now)
        elif isinstance(error, InferenceError) and error.blames_endpoint:
            self.breaker.failure(now)
        elif isinstance(error, InferenceError) and error.kind == "caller":
            self.breaker.success(now)  # it answered, and rightly
        else:
            self.breaker.abandoned(now)

    def probed(self, error: str, *, healthy_after: int, unhealthy_after: int) -> bool:
        """The result of a health check, empty for a good one; True when that changed its health."""
        before = self.health
        self.probe_error = error
        if error:
            self._bad, self._good = self._bad + 1, 0
            if self._bad >= unhealthy_after:
                self.health = "unhealthy"
        else:
            self._good, self._bad = self._good + 1, 0
            if self._good >= healthy_after:
                self.health = "healthy"
        return self.health != before
