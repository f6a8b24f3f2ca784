"""One execution of a request: its deadline, its client, and a trace of what happens to it."""

from collections.abc import Mapping
from types import MappingProxyType

from adapters.types import Deadline
from config.schema.queue import Priority

Event = tuple[str, str]
"""What happened, and the name of the pool or model to which it happened."""

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class CallTrace:
    """What has happened to a call, over all of its attempts.

    The seconds end with the first chunk of the answer. Attempts may wait at the same time: such seconds count once, and
    as an upstream's where one attempt waits in a queue and another for an upstream.
    """

    __slots__ = (
        "_queued", "_since", "_upstreams", "attempts", "events", "first_chunk", "queue_seconds", "upstream_seconds",
    )  # fmt: skip

    def __init__(self) -> None:
        self.attempts: list[str] = []
        """The ids of the endpoints to which the request was sent, in order."""
        self.events: tuple[Event, ...] = ()
        self.first_chunk = 0.0
        """Loop time; 0 before the answer begins."""
        self.upstream_seconds = 0.0
        """The wait for upstreams to begin an answer."""
        self.queue_seconds = 0.0
        """The wait for a free slot at an upstream."""
        self._upstreams = 0
        self._queued = 0
        self._since = 0.0

    def event(self, name: str, subject: str) -> None:
        """Record an event."""
        self.events += ((name, subject),)

    def sent(self, now: float) -> None:
        """An attempt starts to wait for its upstream."""
        if self._upstreams or self._queued:
            self._count(now)
        else:
            self._since = now
        self._upstreams += 1

    def returned(self, now: float) -> None:
        """The upstream of an attempt has begun an answer or failed."""
        if not self.first_chunk:
            self.upstream_seconds += now - self._since
        self._since = now
        self._upstreams -= 1

    def queued(self, now: float) -> None:
        """An attempt enters a queue."""
        self._count(now)
        self._queued += 1

    def dequeued(self, now: float) -> None:
        """An attempt leaves a queue."""
        self._count(now)
        self._queued -= 1

    def _count(self, now: float) -> None:
        """Add the seconds since the last change to the wait that was in progress."""
        if not self.first_chunk:
            if self._upstreams:
                self.upstream_seconds += now - self._since
            elif self._queued:
                self.queue_seconds += now - self._since
        self._since = now


class Call:
    """One execution of a request: everything that the request itself does not state.

    A request is what a client sent; a call is how the gateway executes it. Every `Upstream` receives both. Several
    attempts of one call share its trace.
    """

    __slots__ = (
        "deadline", "full_pools", "headers", "home", "id", "key", "priority", "salt", "sent_at", "share", "tenant",
        "trace", "tried",
    )  # fmt: skip

    def __init__(
        self,
        deadline: Deadline,
        id: str = "",
        tenant: str = "",
        key: str = "",
        headers: Mapping[str, str] = NO_HEADERS,
        salt: str = "",
        share: float = 1.0,
        priority: Priority | None = None,
        home: str = "",
        trace: CallTrace | None = None,
    ) -> None:
        self.deadline = deadline
        self.id = id
        """The request's id in logs, here and at the upstream."""
        self.tenant = tenant
        self.key = key
        """The key's id, never its secret."""
        self.headers = headers
        """Of the client, with lower-case names. Balancing may use them; no adapter forwards them unasked."""
        self.salt = salt
        """Separates the tenant's prompts from those of others in a server's prefix cache. No client can compute it."""
        self.share = share
        """The tenant's weight in a full pool."""
        self.priority = priority
        """In a full pool; None for the tenant's own."""
        self.home = home
        """The only endpoint that may answer, for a request of a sequence whose state is there."""
        self.trace = trace or CallTrace()
        self.tried = self.trace.attempts
        """Endpoints that this request was sent to: another attempt prefers others."""
        self.full_pools: list[str] | None = None
        """The names of pools that were full, of an attempt that does not wait in queues; None for one that waits."""
        self.sent_at: float | None = None
        """Loop time at which this attempt was last sent to an endpoint; None before."""

    def attempt(self) -> "Call":
        """Another attempt of the same request. It shares the trace, and the endpoints that were tried."""
        call = Call(
            self.deadline,
            self.id,
            self.tenant,
            self.key,
            self.headers,
            self.salt,
            self.share,
            self.priority,
            self.home,
            self.trace,
        )
        call.tried, call.full_pools = self.tried, self.full_pools
        return call

    def part(self) -> "Call":
        """A call for a part of the request. It shares the trace; it has tried no endpoint."""
        call = self.attempt()
        call.tried = []
        return call

    def sent(self, endpoint: str, now: float) -> None:
        """This attempt is sent to an endpoint."""
        self.sent_at = now
        self.trace.sent(now)
        self.tried.append(endpoint)
        if self.tried is not self.trace.attempts:
            self.trace.attempts.append(endpoint)
