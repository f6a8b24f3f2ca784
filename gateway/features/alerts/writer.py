"""Compares usage with soft budgets, and delivers alerts, in the background of one process of a host."""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable

from config.schema.config import Config
from config.schema.tenant import WebhookConfig
from gateway.features.alerts.sender import NotDelivered, send
from gateway.features.alerts.signature import body_of, headers_of
from gateway.features.alerts.store import AlertStore, WaitingAlert
from gateway.features.alerts.thresholds import BudgetAlert, reached
from gateway.features.usage.writer import UsageWriter
from gateway.state.insist import Outages
from gateway.state.opened import Opened
from gateway.state.refusals import refuse, write_each
from gateway.state.rounds import Rounds

log = logging.getLogger(__name__)
COMPARE_EVERY = 15.0
DELIVER_EVERY = 1.0
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 3600.0
GIVE_UP = 3 * 86400.0
"""Seconds after which an alert that no attempt delivers is dropped."""
_ROUND = 20
"""Alerts of one webhook in one round."""


class AlertWriter:
    """Run `run_comparisons` and `run_deliveries`, then `aclose`. No request waits for them."""

    def __init__(
        self,
        config: Callable[[], Config],
        pepper: Callable[[], bytes],
        usage: UsageWriter,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.outcomes: Counter[str] = Counter()
        """Attempts by outcome: `delivered`, `retried` or `dropped`."""
        self.waiting = 0
        """Alerts in the database that are not delivered."""
        self._config = config
        self._pepper = pepper
        self._usage = usage
        self._wall = wall
        self._store = Opened(lambda: AlertStore(self._config().state.database, self._pepper()))
        outages = Outages("alerts", meanwhile="new alerts and deliveries are late")
        self._comparisons = Rounds(outages, "comparing", self.compare, lambda: COMPARE_EVERY)
        self._deliveries = Rounds(outages, "delivering", self.deliver, lambda: DELIVER_EVERY)
        self._failing: set[str] = set()
        self._refused: set[str] = set()
        """Ids of alerts that the database refuses: at most one for each threshold of the file and period."""

    async def run_comparisons(self) -> None:
        """Compare until cancelled."""
        await self._comparisons.run()

    async def run_deliveries(self) -> None:
        """Deliver until cancelled."""
        await self._deliveries.run()

    async def compare(self) -> None:
        """Store an alert for each threshold that is reached. Raises `StateError`."""
        config = self._config()
        if config.usage is None or not any(tenant.soft_budgets for tenant in config.tenants):
            return
        await self._usage.write()
        report, store, now = (await self._usage.store()).report, await self.store(), self._wall()
        new, dropped = await asyncio.to_thread(self._added, store, lambda: reached(config, report, now), now)
        self.outcomes["dropped"] += dropped
        if new:
            log.info("alerts: %d thresholds of soft budgets are reached", new)
        if dropped:
            log.warning("alerts: %d alerts are dropped: too many wait for their webhooks", dropped)

    def _added(self, store: AlertStore, find: Callable[[], Iterable[BudgetAlert]], now: float) -> tuple[int, int]:
        """In a thread: store alerts. Returns the numbers of new and of dropped ones."""
        alerts = [alert for alert in find() if alert.id not in self._refused]
        counts: list[tuple[int, int]] = []
        outcome = write_each(alerts, lambda some: counts.append(store.add(some, now)))
        for at, error in outcome.refused.items():
            self._refused.add(alerts[at].id)
            refuse("alerts", alerts[at].id, error)
        if outcome.outage is not None:
            raise outcome.outage
        return sum(new for new, _ in counts), sum(dropped for _, dropped in counts)

    async def deliver(self) -> None:
        """Deliver what is due, to each webhook on its own: a receiver that hangs delays its own alerts alone. Raises
        `StateError`."""
        webhooks = {webhook.name: webhook for webhook in self._config().webhooks}
        if not webhooks and not self._store:
            return
        store = await self.store()
        due = await asyncio.to_thread(store.due, self._wall())
        await asyncio.gather(*(self._deliver_to(store, name, webhooks.get(name)) for name in due))
        self.waiting = await asyncio.to_thread(store.waiting)

    async def store(self) -> AlertStore:
        """The store. Raises `StateError`."""
        return await asyncio.to_thread(self._store)

    async def aclose(self) -> None:
        """Close the database."""
        await asyncio.to_thread(self._store.close)

    async def _deliver_to(self, store: AlertStore, name: str, webhook: WebhookConfig | None) -> None:
        lease = 60.0 if webhook is None else webhook.timeout * 2 + 60
        for _ in range(_ROUND):
            waiting = await asyncio.to_thread(store.take, name, self._wall(), lease)
            if waiting is None or not await self._attempt(store, waiting, webhook):
                return

    async def _attempt(self, store: AlertStore, waiting: WaitingAlert, webhook: WebhookConfig | None) -> bool:
        """One delivery; False if it failed."""
        alert, now = waiting.alert, self._wall()
        try:
            if webhook is None:
                raise NotDelivered("the configuration has no such webhook")
            body = body_of(alert, waiting.at)
            await send(webhook, body, headers_of(alert.id, body, webhook.secret.get_secret_value(), now))
        except NotDelivered as problem:
            await self._failed(store, waiting, str(problem))
            return False
        except Exception as defect:  # its other alerts are delivered
            log.exception("alerts: %s failed", alert.id)
            await self._failed(store, waiting, type(defect).__name__)
            return False
        self._failing.discard(alert.webhook)
        self.outcomes["delivered"] += 1
        await asyncio.to_thread(store.ended, alert.id, "delivered")
        return True

    async def _failed(self, store: AlertStore, waiting: WaitingAlert, reason: str) -> None:
        alert, now = waiting.alert, self._wall()
        if alert.webhook not in self._failing:
            log.warning("alerts: the webhook %s failed and is tried again: %s", alert.webhook, reason)
        self._failing.add(alert.webhook)
        if now - waiting.at >= GIVE_UP:
            self.outcomes["dropped"] += 1
            log.error("alerts: %s is dropped after %d attempts: %s", alert.id, waiting.attempts, reason)
            await asyncio.to_thread(store.ended, alert.id, "dropped")
            return
        self.outcomes["retried"] += 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(waiting.attempts - 1, 20))
        await asyncio.to_thread(store.retry, alert.id, now + pause * random.uniform(0.8, 1.2))
