"""A queue in which tenants take turns."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class TenantQueue(Generic[T]):
    """Items that wait. Each tenant's keep their order, and before its n-th, any other tenant has n turns at most."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        """By tenant, the next one first. No tenant is without an item."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def count(self, tenant: str) -> int:
        """The number of items of a tenant."""
        return len(self._waiting.get(tenant, ()))

    def put(self, tenant: str, item: T) -> None:
        """Add an item. A tenant without one comes after all that wait."""
        self._waiting.setdefault(tenant, deque()).append(item)

    def take(self) -> T:
        """Remove the next item. Raises KeyError if none waits."""
        tenant, items = self._waiting.popitem(last=False)
        item = items.popleft()
        if items:
            self._waiting[tenant] = items
        return item

    def remove(self, tenant: str, item: T) -> bool:
        """Remove an item that may wait; false if it does not."""
        items = self._waiting.get(tenant)
        if items is None or item not in items:
            return False
        items.remove(item)
        if not items:
            del self._waiting[tenant]
        return True
