"""vLLM's sleep over HTTP: whether a server sleeps, its load, and the orders.

(vLLM: `vllm/entrypoints/serve/dev/sleep/api_router.py`. `mode=wait` lets requests in flight end before; former versions
ignore it. After level 2 the weights are read again from their files before requests are scheduled.)
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import aiohttp
import msgspec

from adapters.whole_body import whole_body
from adapters.wire import decoding
from config.schema.config import PoolConfig
from gateway.traffic.fleet.member import FleetError, session

MAX_BYTES = 4 * 1024**2
READ_SECONDS = 2.0
ORDER_SECONDS = 300.0
"""The longest time of one order: weights of many GiB are copied, or read."""
RUNNING = (b"vllm:num_requests_running{", b"vllm:num_requests_waiting{")
ENDED = b"vllm:request_success_total{"
RELOAD = {"method": "reload_weights"}


class SleepError(Exception):
    """A call that failed. The message is for operators and has no address."""


class _Asleep(msgspec.Struct):
    is_sleeping: bool


class SleepLoad(NamedTuple):
    """The requests of all clients at a server."""

    running: float
    """Requests that run or wait there."""
    ended: float
    """Requests that have ended since the start of the server."""


class SleepOrders(Protocol):
    """Calls to the servers of a pool. Each raises `SleepError`."""

    async def asleep(self, address: str) -> bool:
        """Whether the server sleeps."""

    async def load(self, address: str) -> SleepLoad:
        """The load of the server."""

    async def sleep(self, address: str, level: int) -> None:
        """Put the server to sleep, after its requests in flight."""

    async def wake(self, address: str, level: int) -> None:
        """Wake the server. Returns when it computes."""


class HttpSleepOrders:
    """The calls over HTTP, with the credentials and the TLS of the pool's requests."""

    def __init__(self, pool: Callable[[], PoolConfig]) -> None:
        self._pool = pool

    async def asleep(self, address: str) -> bool:
        body = await self._get(address, "/is_sleeping")
        try:
            return msgspec.json.decode(body, type=_Asleep).is_sleeping
        except decoding.MALFORMED_JSON:
            raise SleepError("/is_sleeping is not vLLM's") from None

    async def load(self, address: str) -> SleepLoad:
        lines = (await self._get(address, "/metrics")).splitlines()
        running = [line for line in lines if line.startswith(RUNNING)]
        if not running:
            raise SleepError("/metrics are not vLLM's")
        return SleepLoad(_sum(running), _sum(line for line in lines if line.startswith(ENDED)))

    async def sleep(self, address: str, level: int) -> None:
        await self._post(address, f"/sleep?level={level}&mode=wait")

    async def wake(self, address: str, level: int) -> None:
        if level == 2:
            await self._post(address, "/wake_up?tags=weights")
            await self._post(address, "/collective_rpc", RELOAD)
        await self._post(address, "/wake_up")

    async def _get(self, address: str, path: str) -> bytes:
        try:
            async with (
                session(self._pool(), address, READ_SECONDS) as http,
                http.get(_url(address, path), allow_redirects=False) as response,
            ):
                body = await whole_body(response, MAX_BYTES)
        except (aiohttp.ClientError, OSError, TimeoutError, FleetError) as error:
            raise SleepError(f"{path} failed ({type(error).__name__})") from None
        _check(path, response.status)
        if body is None:
            raise SleepError(f"{path} is larger than {MAX_BYTES // 1024**2} MiB")
        return body

    async def _post(self, address: str, path: str, body: object = None) -> None:
        try:
            async with (
                session(self._pool(), address, ORDER_SECONDS) as http,
                http.post(_url(address, path), json=body, allow_redirects=False) as response,
            ):
                await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError, FleetError) as error:
            raise SleepError(f"{path} failed ({type(error).__name__})") from None
        _check(path, response.status)


def _check(path: str, status: int) -> None:
    if status == 404:
        raise SleepError(f"{path} does not exist: start vLLM with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode")
    if status != 200:
        raise SleepError(f"{path} answered with status {status}")


def _sum(samples: Iterable[bytes]) -> float:
    try:
        return sum(float(sample.rsplit(b" ", 1)[1]) for sample in samples)
    except ValueError:
        raise SleepError("/metrics are not vLLM's") from None


def _url(address: str, path: str) -> str:
    base = "http://localhost" if address.startswith("unix:") else address.rstrip("/")
    return base.removesuffix("/v1") + path
