"""The connection to Redis: fails fast, and reconnects automatically."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from hashlib import sha1
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from config.installing import installing

try:
    from redis.asyncio import ConnectionPool
    from redis.asyncio.connection import AbstractConnection
    from redis.exceptions import RedisError
except ImportError as error:  # the extra is not installed; the caller reports it
    raise ModuleNotFoundError(f"limits that Redis counts need an extra: {installing('redis')}") from error

SCRIPT = (Path(__file__).parent / "ledger.lua").read_bytes()
SHA = sha1(SCRIPT).hexdigest().encode()  # noqa: S324 - Redis' own name for it
CONNECT = 1.0
"""Seconds for a connection and its first exchange."""
BACKOFF, MOST = 0.1, 5.0
"""Seconds before the second attempt, and the maximum to which they double; the actual wait is between half and all of
it.
"""
GRACE = 0.005
"""Timers of a busy gateway may fire before it has read received data: a reply gets this additional time."""
log = logging.getLogger(__name__)
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


class LinkDown(Exception):
    """The link has no response, and none is expected within the timeout."""


class Link:
    """Calls are sent in the order in which they were made and are answered in that order.

    A call without a response within `timeout`, or an invalid response, breaks the link: every waiting call fails, and
    later calls fail at once, until the link is restored in the background.
    """

    def __init__(self, url: str, timeout: float, rng: Random) -> None:
        self._pool = ConnectionPool.from_url(url, protocol=2, socket_timeout=None, socket_connect_timeout=CONNECT)
        self._timeout = timeout
        self._rng = rng
        self._connection: AbstractConnection | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._broken = asyncio.Event()
        self.is_up = asyncio.Event()
        self.error = "not connected yet"
        self.next_try = 0.0
        """Loop time of the next attempt."""
        self.breaks = 0
        self._lost = False
        """Whether the loss has been logged; each loss and its end are logged once."""

    @property
    def up(self) -> bool:
        """Whether calls are likely to be answered."""
        return self.is_up.is_set()

    async def run(self, opened: Callable[[], Awaitable[None]]) -> None:
        """Connect, call `opened`, and repeat whenever the link breaks. Until cancelled."""
        failures = 0
        while True:
            try:
                async with asyncio.timeout(CONNECT):
                    await self._connect()
                    await opened()
                self.error, failures = "", 0
                self.is_up.set()
                if self._lost:
                    self._lost = False
                    log.info("Redis responds again and counts the limits")
                await self._broken.wait()
            except LinkDown:
                pass
            except (RedisError, OSError, TimeoutError, ValueError) as error:
                self._break(f"{type(error).__name__}: {error}"[:200])
            finally:
                await self._drop()
            delay = min(MOST, BACKOFF * 2**failures) * self._rng.uniform(0.5, 1.0)
            failures = min(failures + 1, 16)
            self.next_try = asyncio.get_running_loop().time() + delay
            await asyncio.sleep(delay)

    async def _connect(self) -> None:
        self._broken.clear()
        self._connection = connection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        await connection.connect()
        await connection.send_command("SCRIPT", "LOAD", SCRIPT)
        await connection.read_response()
        self._reader = asyncio.create_task(self._read(connection), name="redis replies")

    async def call(self, step: bytes, keys: list[bytes], argument: object) -> Any:
        """One step of the script. Raises `LinkDown`."""
        connection = self._connection
        if connection is None or self._broken.is_set():
            raise LinkDown(self.error)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(future)
        timer = loop.call_later(self._timeout, self._suspect, future)
        try:
            await connection.send_packed_command(_command(step, keys, _encode(argument)), check_health=False)
            reply = await future
        except (RedisError, OSError) as error:
            self._break(f"{type(error).__name__}: {error}")
            raise LinkDown(self.error) from None
        finally:
            timer.cancel()
            if not future.cancel() and not future.cancelled():
                future.exception()  # marks the exception as retrieved
        return reply

    def _suspect(self, future: "asyncio.Future[Any]") -> None:
        asyncio.get_running_loop().call_later(GRACE, self._give_up, future)

    def _give_up(self, future: "asyncio.Future[Any]") -> None:
        if not future.done():
            self._break(f"no answer within {self._timeout * 1000:g} ms")

    async def _read(self, connection: AbstractConnection) -> None:
        try:
            while True:
                raw = await connection.read_response(disable_decoding=True)
                reply = _decode(raw)
                if reply[0] is not True:
                    self._break("Redis expired this gateway's leases")
                    return
                future = self._waiting.popleft()
                if not future.done():
                    future.set_result(reply[1])
        except Exception as error:  # any exception means an invalid response
            self._break(f"{type(error).__name__}: {error}"[:200])

    def _break(self, why: str, *, is_end: bool = False) -> None:
        """Fail every waiting call now. Nothing is logged at the end of the gateway."""
        if not self._broken.is_set():
            self._broken.set()
            self.breaks += self.is_up.is_set()
            self.is_up.clear()
            self.error = why
            if not self._lost and not is_end:
                self._lost = True
                log.warning("Redis is unavailable (%s): each limit's `on_redis_failure` applies until it responds", why)
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_exception(LinkDown(why))

    async def _drop(self) -> None:
        self._break("closed", is_end=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)
        if (reader := getattr(self, "_reader", None)) is not None:
            reader.cancel()


def _command(step: bytes, keys: list[bytes], argument: bytes) -> list[bytes]:
    words = [b"EVALSHA", SHA, b"%d" % len(keys), *keys, step, argument]
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        parts += (b"$%d\r\n" % len(word), word, b"\r\n")
    return [b"".join(parts)]
