"""What is remembered of one request until its end: the source of its log line and its metrics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adapters.errors import InferenceError
from adapters.types import Usage
from config.schema.money import Money
from gateway.auth.keys import USER
from gateway.limits.allowance import Allowance, Shadowed

if TYPE_CHECKING:
    from gateway.limits.ledger import Reservation


class Record:
    """Filled in as the request goes along. `started`, `first_chunk` and `ended` are loop time, 0 for not yet;
    `time` is the end in Unix seconds.

    It holds no prompt, no answer and no credential: only what may be logged.
    """

    __slots__ = (
        "allowances", "arm", "attempts", "client", "cost", "early", "ended", "endpoint", "error", "events",
        "explanation", "first_chunk", "ignored", "key", "model", "operation", "pool", "queue_seconds", "request_id",
        "roles", "shadowed", "started", "status", "stream", "tenant", "time", "upstream_seconds", "usage",
    )  # fmt: skip

    def __init__(self, request_id: str, operation: str, client: str, started: float) -> None:
        self.request_id = request_id
        self.operation = operation
        self.client = client
        self.started = started
        self.first_chunk = 0.0
        self.tenant = ""
        self.key = ""
        self.roles = USER
        self.model = ""
        self.pool = ""
        self.endpoint = ""
        self.arm: str | None = None
        self.attempts = 0
        self.events: tuple[tuple[str, str], ...] = ()
        self.stream = False
        self.status = 200
        self.usage: Usage | None = None
        self.cost: Money | None = None
        self.allowances: tuple[Allowance, ...] = ()
        """What the request draws on, for the headers that tell what is left."""
        self.shadowed: tuple[Shadowed, ...] = ()
        self.upstream_seconds = 0.0
        self.queue_seconds = 0.0
        self.ignored: Sequence[str] = ()
        """Fields of the request that the model had no use for."""
        self.early: Reservation | None = None
        """What is held while the body is received, and the model not known."""
        self.explanation = ""
        """For the client's eyes, where it asked and may."""
        self.error: InferenceError | None = None
        self.ended = 0.0
        self.time = 0.0

    @property
    def overhead(self) -> float:
        """Seconds to the first chunk in which nobody but the gateway had the request."""
        return self.first_chunk - self.started - self.upstream_seconds - self.queue_seconds
