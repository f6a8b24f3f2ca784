"""A store that is opened at its first use."""

from collections.abc import Callable
from threading import Lock
from typing import Generic, Protocol, TypeVar


class _Closable(Protocol):
    def close(self) -> None: ...


S = TypeVar("S", bound=_Closable)


class Opened(Generic[S]):
    """Call it for the store, in a thread: to open one takes time, and raises what `make` raises. Then the next call
    tries again."""

    def __init__(self, make: Callable[[], S]) -> None:
        self._make = make
        self._store: S | None = None
        self._one_at_a_time = Lock()

    def __call__(self) -> S:
        with self._one_at_a_time:
            if self._store is None:
                self._store = self._make()
            return self._store

    def __bool__(self) -> bool:
        """Whether it is open."""
        return self._store is not None

    def close(self) -> None:
        """Close the store if it is open. A later call opens another one."""
        with self._one_at_a_time:
            store, self._store = self._store, None
        if store is not None:
            store.close()
