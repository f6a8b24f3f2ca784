"""Opens a delivery: checks its envelope, its deadline, its credential and the topic of its answer."""

from collections.abc import Callable
from hashlib import blake2b
from math import inf

from adapters import offload
from adapters.brokers.base import BrokerDelivery
from adapters.errors import CapacityError, CredentialError
from adapters.http1.message import Headers
from adapters.wire.cloudevents import MAX_ID, CloudEvent, EnvelopeError, decode, parse
from config.schema.bus import BindingConfig
from gateway.auth.keys import Principal, bearer, holder_id
from gateway.features.bus.work import DeadReason, MessageWork
from gateway.request.core import Core
from gateway.traffic.queue import PRIORITY_HEADER
from policies.bus import ReplyTopics

FORWARDED = ("inference-header-content-length", "baggage")
"""Headers of a message that its request has too."""
_TRACE = ("traceparent", "tracestate")


class Unanswerable(Exception):
    """A message that cannot run and has no answer."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.reason = DeadReason(code, message)


class Opener:
    """Opens the deliveries of one binding."""

    def __init__(self, binding: BindingConfig, core: Core, now: Callable[[], float]) -> None:
        self._binding = binding
        self._core = core
        self._now = now
        self._replies = ReplyTopics(binding.reply)
        self._key_header = None if binding.key_header is None else binding.key_header.lower()
        self._scope = f"{binding.name}\0"
        self._of_binding = Principal(binding.tenant or "", holder_id("bus", binding.name))
        self._fixed = {} if binding.priority is None else {PRIORITY_HEADER.encode(): binding.priority.encode()}

    async def open(self, delivery: BrokerDelivery) -> MessageWork:
        """The message in work. Raises `Unanswerable`."""
        binding = self._binding
        offload.TENANT.set(self._of_binding.tenant or self._of_binding.key_id)
        if len(delivery.body) > binding.max_message:
            raise Unanswerable("message_too_large", f"The message exceeds {binding.max_message} bytes.")
        event = await self._event(delivery)
        requested = event.extensions.get("replyto") or delivery.headers.get("reply-to")
        topic = self._replies.of(requested)
        if topic is None:
            raise Unanswerable("reply_topic_refused", "The binding does not allow the message's `replyto`.")
        target = event.extensions.get("path", binding.path)
        if target != binding.path and target not in binding.paths:
            raise Unanswerable("path_refused", "The binding does not allow the message's `path`.")
        principal, ends_at = self._principal(delivery), self._ends_at(event)
        return MessageWork(
            delivery, event, self.id_of(event), principal, topic, self._headers(delivery, event), target, ends_at
        )

    def check_count(self, delivery: BrokerDelivery) -> None:
        """Raise `Unanswerable` for a message that was delivered too often."""
        if delivery.count > self._binding.deliveries:
            message = f"The message was delivered {delivery.count - 1} times and never settled."
            raise Unanswerable("delivered_too_often", message)

    async def _event(self, delivery: BrokerDelivery) -> CloudEvent:
        try:
            event = await offload.scan(len(delivery.body), decode, delivery.headers, delivery.body)
        except EnvelopeError as error:
            raise Unanswerable(error.code, error.message) from None
        if event is not None:
            return event
        if self._binding.envelope != "any":
            raise Unanswerable("no_envelope", "The message is no CloudEvent: it has no `ce_specversion`.")
        source = f"/{self._binding.broker.scheme}/{delivery.topic}"
        kind = delivery.headers.get("content-type", "")
        return CloudEvent(delivery.place[:MAX_ID], source, "message", delivery.body, kind, _traces(delivery))

    def _principal(self, delivery: BrokerDelivery) -> Principal:
        """The tenant of the binding, or the holder of the key in the header."""
        if self._key_header is None:
            return self._of_binding
        value = delivery.headers.get(self._key_header)
        is_bearer = self._key_header == "authorization"
        token = bearer(value if is_bearer else None, None if is_bearer else value)
        try:
            principal = self._core.snapshot.credentials.authenticate(token, None, self._core.wall())
        except (CredentialError, CapacityError) as error:
            raise Unanswerable(error.code, error.message) from None
        if self._binding.tenant not in (None, principal.tenant):
            raise Unanswerable("wrong_tenant", "The key is not one of the tenant of the binding.")
        return principal

    def _ends_at(self, event: CloudEvent) -> float:
        """The earlier one of the deadlines of the event and of the binding, as loop time."""
        text = event.extensions.get("deadline") or event.extensions.get("expirytime")
        longest = inf if self._binding.deadline is None else self._binding.deadline
        if text is None:
            return self._now() + longest
        at = parse(text)
        if at is None:
            raise Unanswerable("invalid_deadline", "The `deadline` is no RFC 3339 timestamp with a time zone.")
        return self._now() + min(longest, at - self._core.wall())

    def id_of(self, event: CloudEvent) -> str:
        """The id of an event in the table."""
        text = f"{self._scope}{event.source}\0{event.id}"
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def _headers(self, delivery: BrokerDelivery, event: CloudEvent) -> Headers:
        raw = {**self._fixed, b"x-request-id": event.id.encode("latin-1", "replace")}
        if event.content_type:
            raw[b"content-type"] = event.content_type.encode("latin-1", "replace")
        for name in FORWARDED:
            if (value := delivery.headers.get(name)) is not None:
                raw[name.encode()] = value.encode("latin-1", "replace")
        for name, value in event.extensions.items():
            field = name if name in _TRACE else f"ce-{name}"
            raw[field.encode()] = value.encode("latin-1", "replace")
        raw[b"ce-type"], raw[b"ce-source"] = (
            event.type.encode("latin-1", "replace"),
            event.source.encode("latin-1", "replace"),
        )
        return Headers(raw)


def _traces(delivery: BrokerDelivery) -> dict[str, str]:
    """The attributes that a message without an envelope may have as headers."""
    names = (*_TRACE, "correlationid", "deadline", "partitionkey")
    return {name: value[:512] for name in names if (value := delivery.headers.get(name)) is not None}
