"""The rows of hours to which one writer adds."""

import secrets
from collections import Counter
from collections.abc import Iterable
from typing import Any

from gateway.features.usage.charges import LARGEST, Charge
from gateway.features.usage.labels import COUNTERS, LABELS, OTHERS, UsageLabels, UsageRow, day_of

MOST_SLOTS = 16_384
"""Combinations of labels of an hour. Further ones share a key."""
_MOST_ROWS = 50_000


class WriterRows:
    """The slots of a writer since its begin. No other writer has the same ones."""

    def __init__(self, most_users: int = MOST_SLOTS) -> None:
        """`most_users`: end users of a tenant that are counted separately in an hour."""
        self.most_users = most_users
        self._users: dict[tuple[int, str], set[str]] = {}
        self._source = secrets.token_hex(16)
        self._slots: dict[tuple[int, UsageLabels], list[int]] = {}
        """By hour and labels: the slot that is not full, and its picos."""
        self._number = 0
        self._hours: Counter[int] = Counter()

    @property
    def is_long(self) -> bool:
        """Whether another writer should begin, for the sake of memory."""
        return self._number >= _MOST_ROWS

    def of(self, charges: Iterable[Charge]) -> list[dict[str, Any]]:
        """What charges add to rows. An amount beyond the range of one row has several."""
        sums: dict[tuple[int, UsageLabels], list[int]] = {}
        for hour, labels, amounts in charges:
            place = hour, self._shared(hour, labels)
            before = sums.get(place)
            sums[place] = amounts if before is None else [a + b for a, b in zip(before, amounts, strict=True)]
        return [row for (hour, labels), amounts in sums.items() for row in self._split(hour, labels, amounts)]

    def _shared(self, hour: int, labels: UsageLabels) -> UsageLabels:
        if labels.user:
            users = self._users.setdefault((hour, labels.tenant), set())
            is_full = (hour, labels) not in self._slots and self._hours[hour] >= MOST_SLOTS // 2
            if is_full or (labels.user not in users and len(users) >= self.most_users):
                labels = labels._replace(user=OTHERS)  # clients invent users: these take no place of the keys
            else:
                users.add(labels.user)
        if (hour, labels) not in self._slots and self._hours[hour] >= MOST_SLOTS:
            # Few of these: tenants, models and currencies are those of the configuration.
            labels = labels._replace(key=OTHERS, arm="", user="")
        if (hour, labels) not in self._slots:
            self._slots[hour, labels] = self._slot()
            self._hours[hour] += 1
        return labels

    def _split(self, hour: int, labels: UsageLabels, amounts: list[int]) -> Iterable[dict[str, Any]]:
        picos, *others = amounts
        while True:
            slot = self._slots[hour, labels]
            part = min(picos, LARGEST - slot[1])
            slot[1], picos = slot[1] + part, picos - part
            yield hour_values(self._source, hour, UsageRow(slot[0], labels, (part, *others)))
            if not picos:
                return
            self._slots[hour, labels], others = self._slot(), [0] * len(others)

    def _slot(self) -> list[int]:
        self._number += 1
        return [self._number, 0]


def hour_values(source: str, hour: int, row: UsageRow) -> dict[str, Any]:
    """The columns of a row of one hour. `source` and the slot identify it."""
    place = {"source": source, "slot": row.slot, "hour": hour, "day": day_of(hour)}
    return place | dict(zip(LABELS, row.labels, strict=True)) | dict(zip(COUNTERS, row.counters, strict=True))
