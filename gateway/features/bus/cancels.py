"""Cancels messages in work, as a topic requests."""

from collections.abc import Callable

from adapters.brokers.base import BrokerClient, BrokerUnavailable
from adapters.wire.cloudevents import CloudEvent, EnvelopeError, decode
from gateway.state.insist import Insistence

PATIENCE = 1.0


async def watch_cancels(
    topic: str, client: BrokerClient, insist: Insistence, cancel: Callable[[CloudEvent], None]
) -> None:
    """Pass each event of a topic to `cancel`, until cancelled. Every process reads all events."""
    while True:
        inbox = await insist("cancellations", lambda: client.listen(topic))
        try:
            while True:
                for delivery in await inbox.receive(PATIENCE):
                    try:
                        event = decode(delivery.headers, delivery.body)
                    except EnvelopeError:
                        continue
                    if event is not None:
                        cancel(event)
        except BrokerUnavailable:
            continue
        finally:
            await inbox.aclose()
