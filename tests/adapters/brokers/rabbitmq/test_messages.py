"""Headers and properties of RabbitMQ's messages."""

from datetime import UTC, datetime
from typing import Any

import pytest
from aiormq import Channel, spec
from aiormq.abc import DeliveredMessage
from pamqp.header import ContentHeader

from adapters.brokers.base import BrokerDelivery, BrokerMessage, MessageRejected
from adapters.brokers.rabbitmq.messages import deliveries_of, delivery_of, properties_of


def delivered(headers: dict[str, Any], *, redelivered: bool = False, **properties: Any) -> BrokerDelivery:
    header = ContentHeader(properties=spec.Basic.Properties(headers=headers, **properties))
    deliver = spec.Basic.Deliver("c", 1, redelivered=redelivered, exchange="", routing_key="work")
    channel: Channel = None  # type: ignore[assignment]
    return delivery_of("work", "work.team", DeliveredMessage(deliver, header, b"body", channel), None)


def test_attributes_and_properties_are_headers() -> None:
    given = {"cloudEvents:id": "1", "cloudEvents_Source": "/s", "cloudEvents:specversion": "1.0", "X-Team": b"a"}
    made = delivered(given, content_type="application/json", reply_to="answers", correlation_id="c", message_id="m")
    assert made.headers == {
        "ce_id": "1", "ce_source": "/s", "ce_specversion": "1.0", "ce_correlationid": "c",
        "x-team": "a", "content-type": "application/json", "reply-to": "answers",
    }  # fmt: skip
    assert (made.topic, made.place, made.body, made.count) == ("work", "work.team/m", b"body", 1)


def test_a_message_without_an_envelope_has_its_correlation() -> None:
    assert delivered({}, correlation_id="c").headers == {"correlationid": "c"}


def test_messages_without_an_id_have_different_places() -> None:
    assert delivered({}).place != delivered({}).place


def test_the_key_is_an_attribute() -> None:
    assert delivered({"cloudEvents:partitionkey": "k"}).key == b"k"
    properties = properties_of(BrokerMessage("t", b"", {"ce_id": "1"}, key=b"k"), "1")
    assert isinstance(properties, spec.Basic.Properties)
    assert properties.headers == {"cloudEvents:id": "1", "cloudEvents:partitionkey": "k"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"), (7, "7"), (1.5, "1.5"), (b"\xff", "\ufffd"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    ],
)  # fmt: skip
def test_values_of_headers_are_text(value: Any, text: str) -> None:
    assert delivered({"a": value}).headers == {"a": text}


def test_lists_tables_and_the_counts_of_the_broker_are_no_headers() -> None:
    assert delivered({"a": [1], "b": {"c": 1}, "d": None, "x-delivery-count": 3, "x-death": []}).headers == {}


@pytest.mark.parametrize(
    ("headers", "redelivered", "count"),
    [
        ({}, False, 1),
        ({}, True, 2),
        ({"x-delivery-count": 4}, True, 5),
        ({"x-death": [{"queue": "q", "reason": "rejected", "count": 2}]}, False, 3),
        ({"x-death": [{"queue": "q", "reason": "delivery_limit"}], "x-delivery-count": 1}, True, 3),
        ({"x-death": [{"queue": "q", "reason": "expired", "count": 9}]}, False, 1),
        ({"x-death": [{"queue": "other", "reason": "rejected", "count": 9}]}, False, 1),
        ({"x-death": "text", "x-delivery-count": "text"}, False, 1),
    ],
)
def test_deliveries_are_counted(headers: dict[str, Any], redelivered: bool, count: int) -> None:
    assert deliveries_of(headers, "q", redelivered=redelivered) == count


def test_a_message_has_the_properties_of_its_attributes() -> None:
    headers = {
        "ce_correlationid": "c",
        "ce_replyto": "answers",
        "content-type": "text/plain",
        "headrace-dead-reason": "r",
    }
    properties = properties_of(BrokerMessage("t", b"", headers), "m")
    assert isinstance(properties, spec.Basic.Properties)
    assert (properties.correlation_id, properties.reply_to, properties.message_id) == ("c", "answers", "m")
    assert (properties.content_type, properties.delivery_mode) == ("text/plain", 2)
    assert properties.headers == {
        "cloudEvents:correlationid": "c", "cloudEvents:replyto": "answers", "headrace-dead-reason": "r"
    }  # fmt: skip


def test_an_id_that_is_too_long_is_no_property() -> None:
    properties = properties_of(BrokerMessage("t", b"", {"ce_correlationid": "ü" * 200}), "m" * 256)
    assert isinstance(properties, spec.Basic.Properties)
    assert (properties.correlation_id, properties.message_id) == (None, None)


@pytest.mark.parametrize("headers", [{"a": "x" * 100_000}, {"n" * 256: "x"}, {"content-type": "x" * 256}])
def test_headers_that_cannot_be_encoded_are_rejected(headers: dict[str, str]) -> None:
    assert isinstance(properties_of(BrokerMessage("t", b"", headers), "m"), MessageRejected)
