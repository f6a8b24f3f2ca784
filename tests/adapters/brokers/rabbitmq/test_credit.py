"""The broker sends ahead no more messages than there are free places."""

from random import Random

from adapters.brokers.rabbitmq.subscription import SURPLUS_FOR, Consumer, Credit


def grow(credit: Credit, most: int, buffered: int = 0) -> int:
    """Add the consumer that is missing."""
    if size := credit.missing(most, buffered):
        credit.consumers.append(Consumer(str(len(credit.consumers)), size))
    return size


def test_the_first_consumer_has_the_free_places() -> None:
    credit = Credit(32)
    assert grow(credit, 5) == 5
    assert credit.missing(5, 0) == 0


def test_held_messages_are_no_credit() -> None:
    credit = Credit(32)
    grow(credit, 8)
    credit.consumers[0].held = 8
    assert (credit.free, credit.missing(0, 0)) == (0, 0)
    assert credit.missing(20, 0) == 20


def test_a_message_that_waits_here_needs_no_credit() -> None:
    credit = Credit(32)
    grow(credit, 8)
    credit.consumers[0].held = 8
    assert credit.missing(8, buffered=8) == 0


def test_there_are_few_consumers_however_the_places_grow() -> None:
    credit, dice = Credit(64), Random(1)
    for _ in range(1000):
        grow(credit, dice.randint(0, 64))
        for consumer in credit.consumers:
            consumer.held = dice.randint(0, consumer.size)
    assert len(credit.consumers) <= 9
    assert sum(consumer.size for consumer in credit.consumers) <= 128


def test_credit_without_places_ends_after_a_while() -> None:
    credit = Credit(32)
    grow(credit, 32)
    assert not credit.is_surplus(0, 0, 10.0)
    assert not credit.is_surplus(0, 0, 10.0 + SURPLUS_FOR)
    assert credit.is_surplus(0, 0, 10.1 + SURPLUS_FOR)


def test_a_place_in_the_meantime_begins_the_while_again() -> None:
    credit = Credit(32)
    grow(credit, 32)
    assert not credit.is_surplus(0, 0, 10.0)
    assert not credit.is_surplus(32, 0, 10.9)
    assert not credit.is_surplus(0, 0, 11.5)
    assert credit.is_surplus(0, 0, 12.6)


def test_places_that_are_all_in_work_are_no_surplus() -> None:
    credit = Credit(32)
    grow(credit, 32)
    credit.consumers[0].held = 32
    assert not credit.is_surplus(0, 0, 10.0)
    assert not credit.is_surplus(0, 0, 99.0)
