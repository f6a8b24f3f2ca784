"""The senders of the configuration in force: one for each model with `payload_events`."""

import asyncio
from random import Random

from adapters.brokers.base import BrokerLibraryMissing, make
from config.schema.config import Config
from gateway.background import Background
from gateway.features.payloads.sender import PayloadSender
from gateway.features.payloads.sinks import make_sink
from gateway.request.client_exchange import ClientExchange
from gateway.request.spine import Observer
from gateway.traffic.fleet.member import FleetError


def check_brokers(config: Config) -> None:
    """Raise `FleetError` if the library of a broker of events is missing."""
    for model in config.models:
        if (events := model.payload_events) is not None and events.broker is not None:
            try:
                make(events.broker)
            except BrokerLibraryMissing as error:
                raise FleetError(f"payload_events of the model {model.name}: {error}") from None


class PayloadPlane:
    """`configure` with each configuration; `aclose` at the end."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._rng = Random()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.senders: dict[str, PayloadSender] = {}
        """By model, as configured."""

    def configure(self, config: Config) -> None:
        """Put a configuration in force, which `check_brokers` has passed."""
        configured = {model.name: model.payload_events for model in config.models if model.payload_events is not None}
        for name, sender in tuple(self.senders.items()):
            if configured.get(name) != sender.config:
                self._remove(name)
        for name, events in configured.items():
            if name not in self.senders:
                sender = self.senders[name] = PayloadSender(name, events, make_sink(events), self._rng)
                self._tasks[name] = self._background.run(sender.run, f"payload events of {name}")

    def watch(self, exchange: ClientExchange) -> Observer | None:
        """The draft of a request of a model with events, if it is sampled."""
        model = exchange.snapshot.catalogue.find(exchange.request.model)
        sender = None if model is None else self.senders.get(model.rules.model)
        return None if sender is None else sender.watch(exchange)

    def _remove(self, name: str) -> None:
        self._tasks.pop(name).cancel()
        self._background.once(self.senders.pop(name).aclose(), f"last payload events of {name}")

    async def aclose(self) -> None:
        """Send what waits."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await asyncio.gather(*(sender.aclose() for sender in self.senders.values()))
