"""The sample: selects the requests to record, and drafts a record while its request runs."""

import hashlib
from collections.abc import Iterable
from random import Random

from adapters.answer import Answer, TappedAnswer
from gateway.request.client_exchange import ClientExchange
from gateway.request.spine import Exchange, Observer

MOST_ANSWER = 1024 * 1024
"""Most bytes of an answer that a draft holds. A longer one is recorded in part."""
_RANGE = 2.0**64


class Sample:
    """The sampled share of requests. The key prevents clients from choosing ids that are, or are not, recorded."""

    __slots__ = ("_below", "_key", "answers", "headers")

    def __init__(self, share: float, key: bytes, headers: Iterable[str], *, answers: bool) -> None:
        self._below = int(share * _RANGE)
        self._key = key
        self.headers = tuple(headers)
        """The recorded headers, in lower case."""
        self.answers = answers

    def has(self, request_id: str) -> bool:
        """Whether the request is recorded."""
        digest = hashlib.blake2b(request_id.encode(errors="surrogatepass"), digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "big") < self._below

    def watch(self, exchange: ClientExchange) -> Observer | None:
        """The draft of a sampled request, which observes it; None for any other request."""
        record = exchange.record
        if not self.has(record.request_id):
            return None
        headers = exchange.headers
        recorded = {name: value for name in self.headers if (value := headers.get(name)) is not None}
        record.draft = draft = Draft(exchange, recorded, answers=self.answers)
        exchange.rng = draft.drawing(exchange.rng)
        return draft


class Draft(Observer):
    """The facts of one sampled request, noted along its path."""

    __slots__ = ("answer", "answers", "draws", "exchange", "headers", "held", "overflowed", "pieces", "request",
                 "shares")  # fmt: skip

    def __init__(self, exchange: ClientExchange, headers: dict[str, str], *, answers: bool = False) -> None:
        self.exchange = exchange
        self.request = exchange.request
        """The body that the client sent, without the personal data that a guard masks."""
        self.headers = headers
        self.answers = answers
        self.draws: list[float] = []
        self.shares: tuple[float, ...] = ()
        """The shares of the rollout's arms at the decision."""
        self.answer: Answer | None = None
        self.pieces: list[bytes] = []
        self.held = 0
        """Bytes of the answer's pieces."""
        self.overflowed = False

    @property
    def size(self) -> int:
        """Bytes that the draft holds."""
        return self.request.size + self.held

    def drawing(self, rng: Random) -> "RecordedDraws":
        """A generator whose numbers are recorded, for one decision, which awaits nothing."""
        _draws.begin(rng, self.draws)
        return _draws

    def decided(self, exchange: Exchange) -> None:
        comparison = exchange.decision.comparison
        if comparison is not None:
            self.shares = comparison.shares
        assert isinstance(exchange, ClientExchange)
        if exchange.judge is None:
            self._take_masked(exchange)

    def reserved(self, exchange: Exchange) -> None:
        assert isinstance(exchange, ClientExchange)
        self._take_masked(exchange)

    def _take_masked(self, exchange: ClientExchange) -> None:
        if exchange.record.withheld:  # guards come first, so personal data is masked now
            self.request, exchange.record.withheld = exchange.received, False

    def begun(self, exchange: Exchange, answer: Answer) -> Answer:
        """The answer, whose bytes are recorded while the client reads them."""
        if not self.answers:
            return answer
        self.answer = answer
        if answer.body is None:
            return TappedAnswer(answer, self)
        self.add(answer.body)
        return answer

    def add(self, piece: bytes) -> None:
        """Hold a piece of the answer."""
        if self.overflowed or self.held + len(piece) > MOST_ANSWER:
            self.overflowed = True
            return
        self.pieces.append(piece)
        self.held += len(piece)


class RecordedDraws(Random):
    """Draws from another generator, and records the numbers. The seed of a new generator costs 20 µs, so that all
    requests use one."""

    def __init__(self) -> None:
        super().__init__(0)
        self._rng: Random = self
        self._draws: list[float] = []

    def begin(self, rng: Random, draws: list[float]) -> None:
        """Draw from `rng`, and append to `draws`, from now on."""
        self._rng, self._draws = rng, draws

    def random(self) -> float:
        """A number in [0, 1)."""
        drawn = self._rng.random()
        self._draws.append(drawn)
        return drawn


_draws = RecordedDraws()
