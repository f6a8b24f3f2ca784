"""Answers, pieces of streams and dead letters as messages of a broker."""

from collections.abc import Callable

from adapters.brokers.base import BrokerDelivery, BrokerMessage
from adapters.wire.cloudevents import CloudEvent, format_time, headers_of
from config.schema.bus import BindingConfig
from gateway.features.bus.work import DeadReason, MessageWork

ANSWER, ERROR, PIECE, END = (f"com.headrace.{kind}" for kind in ("answer", "error", "piece", "end"))
JSON = "application/json"
DEAD = "headrace-dead-"
"""The prefix of the headers that describe a dead letter."""
_FORWARDED = ("traceparent", "tracestate")


class AnswerMessages:
    """Writes the messages of one binding."""

    def __init__(self, binding: BindingConfig, wall: Callable[[], float]) -> None:
        self._binding = binding
        self._source = f"/headrace/{binding.name}"
        self._wall = wall
        self._secret_headers = {"authorization", "x-api-key", "api-key", (binding.key_header or "").lower()}

    def answer(self, work: MessageWork, status: int, content_type: str, body: bytes, request_id: str) -> BrokerMessage:
        """The whole answer to a message, or its error."""
        kind = ANSWER if status < 400 else ERROR
        return self._message(work, kind, content_type, body, work.id, status=str(status), requestid=request_id)

    def piece(self, work: MessageWork, stream: str, number: int, data: bytes) -> BrokerMessage:
        """One event of a stream. Events are numbered from 0; `stream` names the attempt."""
        return self._message(
            work, PIECE, JSON, data, f"{work.id}.{stream}.{number}", streamid=stream, sequence=str(number)
        )

    def end(self, work: MessageWork, stream: str, number: int, status: int, request_id: str) -> BrokerMessage:
        """The end of a stream, after its last event."""
        attributes = {"streamid": stream, "sequence": str(number), "status": str(status), "requestid": request_id}
        return self._message(work, END, "", b"", f"{work.id}.{stream}.end", **attributes)

    def dead(self, delivery: BrokerDelivery, reason: DeadReason, *, whole: bool = True) -> BrokerMessage:
        """A message that cannot be answered, with the reason and its place; without its body if not `whole`."""
        headers = {name: value for name, value in delivery.headers.items() if name not in self._secret_headers}
        about = {
            "reason": reason.code,
            "message": reason.message,
            "binding": self._binding.name,
            "topic": delivery.topic,
            "place": delivery.place,
            "time": format_time(self._wall()),
        }
        if not whole:
            about["bytes"] = str(len(delivery.body))
            headers = {}
        headers |= {f"{DEAD}{name}": _one_line(value) for name, value in about.items()}
        body = delivery.body if whole else b""
        id_ = f"dead/{self._binding.name}/{delivery.place}"
        return BrokerMessage(self._binding.dead_letters, body, headers, delivery.key, id_)

    def _message(
        self, work: MessageWork, kind: str, content_type: str, body: bytes, id_: str, **attributes: str
    ) -> BrokerMessage:
        given = work.event.extensions
        extensions = {"correlationid": given.get("correlationid") or work.event.id, "time": format_time(self._wall())}
        extensions |= {name: given[name] for name in _FORWARDED if name in given}
        event = CloudEvent(id_, self._source, kind, body, content_type, extensions | attributes)
        return BrokerMessage(work.reply_topic, body, headers_of(event), work.order_key, id_)


def is_dead_letter(message: BrokerMessage) -> bool:
    """Whether a message is a dead letter."""
    return f"{DEAD}reason" in message.headers


def _one_line(text: str) -> str:
    """A header's value."""
    return " ".join(text.split())[:512]
