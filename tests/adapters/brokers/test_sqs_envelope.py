"""Bodies and headers of any kind pass through the attributes and the texts of SQS."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.brokers.sqs.connection import MOST_ATTRIBUTES, decode, encode, queue_name

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789_-. ", min_size=1, max_size=20)


BODIES = st.binary(max_size=50) | st.text(max_size=50).map(lambda text: text.encode("utf-8", "surrogatepass"))
VALUES = st.text(st.characters(codec="utf-8"), max_size=20)


@given(BODIES, st.dictionaries(NAMES, VALUES, max_size=15))
def test_every_message_returns_as_it_was(body: bytes, headers: dict[str, str]) -> None:
    text, attributes = encode(body, headers)
    assert text
    assert len(attributes) <= MOST_ATTRIBUTES
    assert all(each["StringValue"] for each in attributes.values())
    assert decode(text, attributes) == (body, headers)


def test_names_of_queues() -> None:
    assert queue_name("team.answers") == "team_answers"
    assert queue_name("team.orders.fifo") == "team_orders.fifo"
