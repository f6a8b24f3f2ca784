"""A value that expires, and is renewed ahead of its expiry: in the background, and once for all requests."""

import asyncio
import logging
import random
import weakref
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from typing import Generic, NamedTuple, TypeVar

from adapters.errors import Unavailable
from adapters.wire.failure_text import MADE, for_log

log = logging.getLogger(__name__)
T = TypeVar("T")

AHEAD = 300.0
"""Seconds before the expiry at which a value is renewed, at most."""
SHARE = 0.2
"""That time as a share of a short lifetime. A source may return the same value until shortly before its expiry: the
remaining lifetime is then divided again and again."""
JITTER = 0.2
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two failed renewals, which double."""
WAIT = 5.0
"""Longest time that a request waits for a value, in seconds."""
DISCARD_AFTER = 30.0
"""Age of a value, in seconds, from which a server's refusal discards it: a server may refuse every value."""
LONGEST = 7 * 86400.0
"""Longest time between two renewals, in seconds: a timer of the event loop is bounded."""


class Issued(NamedTuple, Generic[T]):
    """A new value."""

    value: T
    seconds: float | None
    """The lifetime that is left; None for a value without an expiry."""


class RenewalError(Exception):
    """A value could not be made. The message has no secret."""


class Renewed(Generic[T]):
    """A value of one event loop. It stays in use until it expires, also if it cannot be renewed.

    The first value is made when it is needed. From then on each is made ahead of the expiry of the one before, as long
    as this object is referenced. `label` names the source in the log; `secrets` are those of a value.
    """

    def __init__(
        self, label: str, make: Callable[[], Awaitable[Issued[T]]], secrets: Callable[[T], Iterable[str]]
    ) -> None:
        self._secrets = secrets
        self._label = label
        self._make = make
        self.loop = asyncio.get_running_loop()
        self._issued: T | None = None
        self._until = self._since = 0.0
        self._attempt: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pause = FIRST_PAUSE
        self.failure = ""
        """Why the last attempt failed; empty after a success."""
        self.pools: set[str] = set()
        """The pools that use the value, for the log."""

    @property
    def valid(self) -> T | None:
        """The value; None without a valid one."""
        return self._issued if self._issued is not None and self.loop.time() < self._until else None

    async def get(self, pool: str) -> T:
        """Return a valid value for a request to a pool, which waits for it at most `WAIT` seconds.

        Raises `Unavailable`.
        """
        if (value := self.valid) is not None:
            return value
        if self._attempt is None and not (self.failure and self._timer is not None):  # else its next attempt has a time
            self.renew()
        if self._attempt is not None:
            await asyncio.wait((self._attempt,), timeout=WAIT)
        if (value := self.valid) is not None:
            return value
        error = Unavailable(
            f"The gateway has no valid credential for the servers of the pool `{pool}`.", retry_after=self._pause
        ).because("upstream_credentials", pool=pool)
        error.delivered = False
        error.detail = f"credentials of {self._label}: {self.failure or 'they are not there yet'}"
        raise error

    def renew(self) -> None:
        """Make a new value in the background, unless that has begun. The value before stays in use until then."""
        if self._attempt is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # A request's context has variables that lead its calls elsewhere: a relay, a pass of a batch.
        self._attempt = self.loop.create_task(self._try(), name="credentials", context=Context())

    def discards(self, refused: T) -> bool:
        """Forget a value that a server has refused. Returns whether there is, or soon may be, another one."""
        if self._issued != refused:
            return True
        if self.loop.time() - self._since < DISCARD_AFTER:
            return False
        self._issued = None
        self.renew()
        return True

    async def _try(self) -> None:
        try:
            issued = await self._make()
            if issued.seconds is not None and issued.seconds <= 0:
                raise RenewalError("it has expired already: compare the clocks")
        except RenewalError as error:
            self._failed(str(error))
        except Exception as error:  # of a source's own code: it must not end the renewals
            self._failed(f"{type(error).__name__}: {error}")
        else:
            if self.failure:
                log.info("credentials of %s: renewed again", self._label)
            self._issued, self.failure, self._pause = issued.value, "", FIRST_PAUSE
            self._since = self.loop.time()
            for secret in self._secrets(issued.value):
                MADE.add(secret)
            lasts = LONGEST if issued.seconds is None else issued.seconds
            self._until = self._since + lasts if issued.seconds is not None else float("inf")
            if issued.seconds is not None:
                ahead = min(AHEAD, SHARE * lasts)
                self._plan(min(LONGEST, max(lasts - ahead * (1 + JITTER * random.random()), lasts / 2)))
        finally:
            self._attempt = None

    def _failed(self, reason: str) -> None:
        self.failure = for_log(reason)
        pools = ", ".join(sorted(self.pools))
        state = "the one before is valid" if self.valid is not None else "requests are refused"
        log.warning("credentials of %s, for %s: %s; %s", self._label, pools, self.failure, state)
        self._plan(self._pause * random.uniform(1 - JITTER, 1 + JITTER))
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)

    def _plan(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, _renew, weakref.ref(self))


def _renew(reference: "weakref.ref[Renewed[T]]") -> None:
    if (renewed := reference()) is not None:
        renewed._timer = None
        renewed.renew()
