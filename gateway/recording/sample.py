"""The sample: selects the requests to record, and drafts a record while its request runs."""

import hashlib
from collections.abc import Iterable, Mapping
from random import Random

from adapters.answer import Answer
from adapters.requests import ModelRequest
from config.schema.money import Money
from gateway.answer_tap import TappedAnswer
from gateway.auth.keys import Principal
from policies.routing.decision import Decision

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

    def draft(self, principal: Principal, request: ModelRequest, headers: Mapping[str, str]) -> "Draft":
        """The draft of a sampled request."""
        recorded = {name: value for name in self.headers if (value := headers.get(name)) is not None}
        return Draft(principal, request, recorded, answers=self.answers)


class Draft:
    """The facts of one sampled request, noted along its path."""

    __slots__ = ("amounts", "answer", "answers", "cost", "decided", "decision", "draws", "headers", "held",
                 "overflowed", "pieces", "principal", "request", "shares")  # fmt: skip

    def __init__(
        self, principal: Principal, request: ModelRequest, headers: dict[str, str], *, answers: bool = False
    ) -> None:
        self.principal = principal
        self.request = request
        """The body that the client sent."""
        self.headers = headers
        self.answers = answers
        self.decision: Decision | None = None
        self.decided = 0.0
        """Unix time of the decision."""
        self.draws: list[float] = []
        self.shares: tuple[float, ...] = ()
        """The shares of the rollout's arms at the decision."""
        self.amounts: tuple[float, ...] = ()
        self.cost = 0
        """The reserved picos."""
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

    def decide(self, decision: Decision | None, now: float) -> None:
        """Note the decision."""
        self.decision, self.decided = decision, now
        if decision is not None and decision.comparison is not None:
            self.shares = decision.comparison.shares

    def reserve(self, amounts: tuple[float, ...], cost: Money | None) -> None:
        """Note the amounts and the cost to reserve."""
        self.amounts, self.cost = amounts, 0 if cost is None else cost.picos

    def tap(self, answer: Answer) -> Answer:
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
