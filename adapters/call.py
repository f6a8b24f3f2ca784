"""One execution of a request: its deadline, its client, and the trace of its attempts."""

from collections.abc import Mapping
from types import MappingProxyType

from adapters.types import Deadline
from config.schema.queue import Priority

Event = tuple[str, str]
"""The name of an event, and the name of the pool or model that it concerns."""

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class CallTrace:
    """The record of a call, over all of its attempts.

    The measurement ends with the first chunk of the answer. If attempts wait at the same time, each second counts once:
    as a second of the upstream if any attempt waits for an upstream, otherwise as a second of the queue.
    """

    __slots__ = (
        "_queued", "_since", "_upstreams", "attempts", "events", "first_chunk", "queue_seconds", "upstream_seconds",
    )  # fmt: skip

    def __init__(self) -> None:
        self.attempts: list[str] = []
        """The ids of the endpoints to which the request was sent, in order."""
        self.events: tuple[Event, ...] = ()
        self.first_chunk = 0.0
        """Loop time of the first chunk; 0 before the answer begins."""
        self.upstream_seconds = 0.0
        """Time spent waiting for upstreams to begin an answer."""
        self.queue_seconds = 0.0
        """Time spent waiting for a free slot of an upstream."""
        self._upstreams = 0
        self._queued = 0
        self._since = 0.0

    def event(self, name: str, subject: str) -> None:
        """Record an event."""
        self.events += ((name, subject),)

    def sent(self, now: float) -> None:
        """Record that an attempt starts to wait for its upstream."""
        if self._upstreams or self._queued:
            self._count(now)
        else:
            self._since = now
        self._upstreams += 1

    def returned(self, now: float) -> None:
        """Record that the upstream of an attempt has begun an answer or failed."""
        if not self.first_chunk:
            self.upstream_seconds += now - self._since
        self._since = now
        self._upstreams -= 1

    def queued(self, now: float) -> None:
        """Record that an attempt enters a queue."""
        self._count(now)
        self._queued += 1

    def dequeued(self, now: float) -> None:
        """Record that an attempt leaves a queue."""
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
    """One execution of a request: all data that is not part of the request itself.

    A request is the input of a client; a call is its execution by the gateway. Every `Upstream` receives both. The
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
        """The id of the request in the logs of the gateway and of the upstream."""
        self.tenant = tenant
        self.key = key
        """The id of the key, never its secret."""
        self.headers = headers
        """The client's headers, with lower-case names, for balancing. Adapters forward them only if configured."""
        self.salt = salt
        """Separates the tenants' prompts in a server's prefix cache. No client can compute it."""
        self.share = share
        """The weight of the tenant in a full pool."""
        self.priority = priority
        """The priority in a full pool; None for the tenant's own priority."""
        self.home = home
        """The only endpoint that may answer a request of a sequence, because it has the sequence's state."""
        self.trace = trace or CallTrace()
        self.tried = self.trace.attempts
        """The endpoints to which this request was sent: another attempt prefers other endpoints."""
        self.full_pools: list[str] | None = None
        """The names of full pools, for an attempt that does not wait in queues; None for an attempt that waits."""
        self.sent_at: float | None = None
        """Loop time at which this attempt was last sent to an endpoint; None before."""

    def attempt(self) -> "Call":
        """Create another attempt of the same request. It shares the trace and the endpoints that were tried."""
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
        """Create a call for a part of the request. It shares the trace, but has tried no endpoint."""
        call = self.attempt()
        call.tried = []
        return call

    def sent(self, endpoint: str, now: float) -> None:
        """Record that this attempt is sent to an endpoint."""
        self.sent_at = now
        self.trace.sent(now)
        self.tried.append(endpoint)
        if self.tried is not self.trace.attempts:
            self.trace.attempts.append(endpoint)
