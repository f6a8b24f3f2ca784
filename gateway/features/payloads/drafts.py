"""A sampled request while it runs: its body as the model receives it, and its answer as the guards let it pass."""

import time
from collections.abc import Callable

from adapters.answer import Answer
from gateway.features.recording.sample import Draft
from gateway.request.client_exchange import ClientExchange
from gateway.request.spine import Exchange


class PayloadDraft(Draft):
    """Observes one request. `ended` receives it once, and whether its answer is whole."""

    __slots__ = ("_ended", "arrived", "is_decided")

    def __init__(
        self, exchange: ClientExchange, ended: Callable[["PayloadDraft", bool], None], *, answers: bool
    ) -> None:
        super().__init__(exchange, {}, answers=answers)
        self._ended = ended
        self.arrived = time.time()
        """Unix time."""
        self.is_decided = False

    def decided(self, exchange: Exchange) -> None:
        """Nothing: guards that judge have not masked the request yet."""

    def reserved(self, exchange: Exchange) -> None:
        # Guards come first: what they masked in the request is masked here. They have let it pass.
        assert isinstance(exchange, ClientExchange)
        self.request = exchange.received
        self.is_decided = True

    def begun(self, exchange: Exchange, answer: Answer) -> Answer:
        answer = super().begun(exchange, answer)
        answer.when_ended(lambda _, error: self._ended(self, error is None))
        return answer

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        self._ended(self, False)
