"""The rollouts of one process. A reload preserves those whose arms are the same."""

from collections.abc import Iterable, Mapping

from config.schema.config import Config
from config.schema.experiment import FeedbackMetricConfig
from config.schema.rollout import RolloutConfig
from policies.rollouts.live import LiveComparison
from policies.rollouts.progress import fingerprint
from policies.rollouts.signed_ids import IdSigner, SignedId, read_id
from policies.rollouts.tally import ShareOrder, StratumTally
from policies.routing.rules import comparisons_of

MOST_REMOVED = 64
"""Orders of removed comparisons."""


class LiveComparisons:
    """Rollouts and experiments by name. Until its first order, each leaves all requests with its first arm.

    Those with values of clients sign the ids of their requests under `secret`.
    """

    def __init__(self, secret: bytes = b"") -> None:
        self.secret = secret
        self.by_name: Mapping[str, LiveComparison] = {}
        self.metrics: Mapping[str, FeedbackMetricConfig] = {}
        """The metrics that clients may report."""
        self._numbers: Mapping[int, list[LiveComparison]] = {}
        self._orders: dict[str, ShareOrder] = {}

    def configure(self, config: Config) -> None:
        """Apply a configuration."""
        pools = {pool.name: pool for pool in config.pools}
        configured: dict[str, LiveComparison] = {}
        numbers: dict[int, list[LiveComparison]] = {}
        self.metrics = {metric.name: metric for metric in config.feedback}
        for model, compared in comparisons_of(config.models):
            identity = fingerprint(compared, pools)
            live = self.by_name.get(compared.name)
            if live is None or live.fingerprint != identity:
                live = LiveComparison(compared, identity, model.name)
            live.configure(compared)
            reads = not isinstance(compared, RolloutConfig) or any(event.of is not None for event in compared.events())
            live.signer = (live.signer or IdSigner((self.secret,), compared.name)) if reads else None
            if live.signer is not None:
                numbers.setdefault(live.signer.number, []).append(live)
            configured[compared.name] = live
        self.by_name, self._numbers = configured, numbers
        self.apply(self._orders.values())

    def apply(self, orders: Iterable[ShareOrder]) -> None:
        """Put shares in force. An order for other arms than those of the file waits for its reload, and the last one of
        a removed comparison for its return."""
        for order in list(orders):
            self._orders.pop(order.comparison, None)
            self._orders[order.comparison] = order
            live = self.by_name.get(order.comparison)
            if live is not None and live.fingerprint == order.fingerprint:
                live.apply(order)
        removed = [name for name in self._orders if name not in self.by_name]
        for name in removed[:-MOST_REMOVED]:
            del self._orders[name]

    def signed(self, text: str, tenant: str) -> tuple[LiveComparison, SignedId] | None:
        """The comparison of a request's id, and the contents of the id. None for an id that no comparison of the file
        has signed for this tenant."""
        read = read_id(text)
        if read is None:
            return None
        id, raw = read
        for live in self._numbers.get(id.number, ()):
            if live.signer is not None and live.signer.is_valid(raw, tenant):
                return live, id
        return None

    def take(self) -> list[StratumTally]:
        """The counts since the last report."""
        return [tally for live in self.by_name.values() for tally in live.take()]
