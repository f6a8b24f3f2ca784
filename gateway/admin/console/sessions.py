"""Sessions of the console, in the memory of the process that serves the admin listener.

A restart of that process ends all sessions. Only hashes of the ids are stored: the id itself is the browser's.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from config.schema.config import OidcConfig
from gateway.auth.keys import Principal

MOST = 1024
"""Sessions at the same time. Beyond them, the session that was used longest ago ends."""
MOST_OF_ONE = 16
"""Sessions of one principal at the same time."""


@dataclass(slots=True)
class Session:
    """A browser that is signed in. Times are monotonic seconds."""

    principal: Principal
    label: str
    """The name of the person, or the id of the key."""
    provider: OidcConfig | None
    """The provider by which a person signed in; None for a key, with which the session ends."""
    began: float
    used: float
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """The token that each change repeats in a header: another site cannot read it."""


class Sessions:
    """All sessions. `lifetimes` returns the longest idle time and the longest time of a session in seconds."""

    def __init__(
        self, lifetimes: Callable[[], tuple[float, float]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lifetimes = lifetimes
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}  # the one that was used longest ago comes first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, principal: Principal, label: str, provider: OidcConfig | None = None) -> tuple[str, Session]:
        """Open a session. Returns its id, which is always a new one, and the session."""
        self._end_expired()
        own = [key for key, each in self._sessions.items() if each.principal.key_id == principal.key_id]
        for key in own[: max(0, len(own) + 1 - MOST_OF_ONE)]:
            del self._sessions[key]
        if len(self._sessions) >= MOST:
            del self._sessions[next(iter(self._sessions))]
        id, now = secrets.token_urlsafe(32), self._clock()
        session = self._sessions[_hash(id)] = Session(principal, label, provider, now, now)
        return id, session

    def get(self, id: str) -> Session | None:
        """The session of an id, which counts as used; None if there is none, or if it has expired."""
        key = _hash(id)
        session = self._sessions.pop(key, None)
        if session is None or self._has_expired(session):
            return None
        session.used = self._clock()
        self._sessions[key] = session
        return session

    def end(self, id: str) -> Session | None:
        """End a session. Returns it, if there was one."""
        return self._sessions.pop(_hash(id), None)

    def _has_expired(self, session: Session) -> bool:
        now, (idle, longest) = self._clock(), self._lifetimes()
        return now - session.used >= idle or now - session.began >= longest

    def _end_expired(self) -> None:
        for key in [key for key, each in self._sessions.items() if self._has_expired(each)]:
            del self._sessions[key]


def _hash(id: str) -> bytes:
    return hashlib.sha256(id.encode(errors="surrogatepass")).digest()
