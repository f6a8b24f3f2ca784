"""The rollouts of one process. A reload preserves those whose arms are the same."""

from collections.abc import Iterable, Mapping

from config.schema.config import Config
from policies.rollouts.fingerprint import fingerprint
from policies.rollouts.live import LiveComparison
from policies.rollouts.tally import ShareOrder, StratumTally
from policies.routing.rules import rollouts_of


class LiveComparisons:
    """Rollouts by name. One that no order has reached yet leaves all requests with its first arm."""

    def __init__(self) -> None:
        self.by_name: Mapping[str, LiveComparison] = {}
        self._orders: dict[str, ShareOrder] = {}

    def configure(self, config: Config) -> None:
        """Apply a configuration."""
        pools = {pool.name: pool for pool in config.pools}
        configured: dict[str, LiveComparison] = {}
        for model, rollout in rollouts_of(config.models):
            identity = fingerprint(rollout, pools)
            live = self.by_name.get(rollout.name)
            if live is None or live.fingerprint != identity:
                live = LiveComparison(rollout, identity, model.name)
            live.configure(rollout)
            configured[rollout.name] = live
        self.by_name = configured
        self.apply(self._orders.values())

    def apply(self, orders: Iterable[ShareOrder]) -> None:
        """Put shares in force. An order for other arms than those of the file waits for its reload."""
        for order in list(orders):
            self._orders[order.comparison] = order
            live = self.by_name.get(order.comparison)
            if live is not None and live.fingerprint == order.fingerprint:
                live.apply(order)
        self._orders = {name: order for name, order in self._orders.items() if name in self.by_name}

    def take(self) -> list[StratumTally]:
        """The counts since the last report."""
        return [tally for live in self.by_name.values() for tally in live.take()]
