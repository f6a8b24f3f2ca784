"""The record of one request: the source of its log line and its metrics."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from adapters import offload
from adapters.call import CallTrace, StepTrace
from adapters.errors import InferenceError
from adapters.http1.relay import Relay
from adapters.reason import Reason
from adapters.types import Usage
from config.schema.identity import USER
from config.schema.money import Money

if TYPE_CHECKING:
    from random import Random

    from policies.routing.decision import Decision


class RequestHolder(Protocol):
    """The identity of a client."""

    @property
    def tenant(self) -> str: ...
    @property
    def key_id(self) -> str: ...
    @property
    def team(self) -> str: ...
    @property
    def lineage(self) -> str: ...
    @property
    def roles(self) -> frozenset[str]: ...


class EarlyHold(Protocol):
    """What a request holds of its limits before its model is known."""

    def undo(self, now: float) -> None:
        """Release it."""
        ...


class PersonalAnswer(Protocol):
    """The personal data of a request whose answer is stored without it."""

    def hidden(self, body: bytes) -> bytes:
        """The answer as it is stored."""
        ...

    def labelled(self, id_: str) -> str:
        """The id of the stored answer, with what the next request needs."""
        ...


class Record:
    """The record of one request, filled in while the request runs.

    `started` and `ended` are loop time, 0 before the event; `time` is the end in Unix seconds. A record has no prompt,
    no answer and no credential, so all of it but its draft may be logged.
    """

    __slots__ = (
        "allowances", "arm", "client", "cost", "decision", "draft", "draws", "early", "ended", "endpoint", "error",
        "explanation", "exported", "feedback_id", "guard_seconds", "guarding", "guards", "ignored", "in_conversation",
        "key", "lineage", "masked", "model", "of_batch", "operation", "personal", "pool", "previous", "reason",
        "relay", "request_id", "rng", "roles", "sealed", "shadowed", "started", "status", "stored", "stream", "team",
        "tenant", "time", "trace", "usage", "user", "withheld",
    )  # fmt: skip

    def __init__(self, request_id: str, operation: str, client: str, started: float) -> None:
        self.request_id = request_id
        self.operation = operation
        self.client = client
        self.started = started
        self.trace = CallTrace()
        self.tenant = ""
        self.key = ""
        self.lineage = ""
        """The first key that the key replaces; empty for a key that replaces none."""
        self.team = ""
        self.user = ""
        """The end user whom the client names, bounded. It may be a person: it is stored only if usage counts users."""
        self.roles = USER
        self.model = ""
        self.pool = ""
        self.endpoint = ""
        self.arm: str | None = None
        self.decision: Decision | None = None
        """The decision of the routes; None for a request without a route."""
        self.stream = False
        self.stored = False
        """Whether the request stores its response, or continues a stored one."""
        self.in_conversation = False
        """Whether the request belongs to a stored conversation."""
        self.previous = ""
        """The id of the stored response that the request continues; empty for none."""
        self.sealed = ""
        """The sealed personal data of the response that the request continues; empty for none."""
        self.personal: PersonalAnswer | None = None
        """What the stored answer must not have; None for an answer without personal data, or one that is not stored."""
        self.masked: PersonalAnswer | None = None
        """The personal data that a guard has masked, which the answer has again: a batch stores it sealed. None for
        none."""
        self.withheld = False
        """Whether the body that the client sent may have personal data, which must not be recorded."""
        self.rng: Random | None = None
        """Draws the arms of a request that passes more than once; None for the gateway's own draws."""
        self.of_batch = False
        """Whether the request is a line of a batch: it has the price of batches, and the batch counts its usage."""
        self.status = 200
        self.usage: Usage | None = None
        self.cost: Money | None = None
        self.draws: tuple[Any, ...] = ()
        """What the request has drawn from limits of long periods."""
        self.allowances: tuple[Any, ...] = ()
        """The limits that apply to the request, for the headers that report the remaining amounts."""
        self.shadowed: tuple[tuple[str, str], ...] = ()
        self.ignored: Sequence[str] = ()
        """Fields of the request that the model ignored."""
        self.guarding: StepTrace | None = None
        """The usage and the cost of guards that call models; None if none has."""
        self.guards: dict[tuple[str, str, str, str], int] | None = None
        """How often guards have found a text: by name, action, mode and side. None if none has."""
        self.guard_seconds: list[tuple[str, float]] | None = None
        """The time of each verdict of a guard that judges, by its name; None if none has judged."""
        self.early: EarlyHold | None = None
        """The reservation while the body is received and the model is unknown."""
        self.feedback_id = ""
        """The signed id of a request of an experiment, if the client has given the request an id of its own."""
        self.explanation = ""
        """The explanation of the route, if the client requests it and may receive it."""
        self.draft: object | None = None
        """The facts of a request in the sample of recorded traffic. Only the recorder reads it."""
        self.relay: Relay | None = None
        """The proxy that carries the request to its endpoint."""
        self.exported = ""
        """The id of the trace of the request, if its spans are exported."""
        self.error: InferenceError | None = None
        self.reason: Reason | None = None
        """Why the request was refused; None if it was not."""
        self.ended = 0.0
        self.time = 0.0

    def hold(self, principal: RequestHolder) -> None:
        """Set the identity of the client, also for the large bodies that this task decodes."""
        offload.TENANT.set(principal.tenant)
        self.tenant, self.key, self.team, self.roles, self.lineage = (
            principal.tenant, principal.key_id, principal.team, principal.roles, principal.lineage
        )  # fmt: skip

    def sign(self, id: str, headers: Mapping[str, str]) -> None:
        """Give the request an id for feedback: as its id, unless that is the client's own."""
        if headers.get("x-request-id") == self.request_id:
            self.feedback_id = id
        else:
            self.request_id = id

    @property
    def overhead(self) -> float:
        """Seconds up to the first chunk that the request spent in the gateway itself."""
        trace = self.trace
        return trace.first_chunk - self.started - trace.upstream_seconds - trace.queue_seconds
