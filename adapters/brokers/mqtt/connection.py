"""One network connection to an MQTT broker, on the event loop.

The library encodes and decodes packets, and reads and writes when the loop reports that the socket is ready. A lost
connection is not opened again: its owner makes another one.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from random import sample
from typing import Any, NamedTuple

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from adapters.brokers.base import BrokerUnavailable, credentials_of, servers_of, tls_of
from config.schema.bus import BrokerConfig

CONNECT = 5.0
ANSWERS_WITHIN = 10.0
KEEPALIVE = 10
"""Seconds between two packets. A broker ends a connection after one and a half of them."""
TICK = 1.0
"""Seconds between two looks at the connection."""
MOST_UNANSWERED = 1000
"""Messages that are published before the broker acknowledges the first one."""
PORT, TLS_PORT = 1883, 8883
_FAILED, _TAKEN_OVER = 0x80, 0x8E
_LOST = (MQTTErrorCode.MQTT_ERR_NO_CONN, MQTTErrorCode.MQTT_ERR_CONN_LOST)


class ConnectionPlan(NamedTuple):
    """The settings of a connection."""

    client_id: str = ""
    """Empty: the broker chooses one."""
    expiry: int = 0
    """Seconds for which the broker stores the session without a connection; 0: no longer than the connection."""
    most: int = 1000
    """Messages that the broker sends before the first one is acknowledged: the receive maximum."""
    acks: bool = False
    """Whether the owner acknowledges messages; otherwise they are acknowledged when they arrive."""


def _leave(paho: Client) -> None:
    """End a connection that nobody waits for any more, or that failed half-way."""
    socket = paho.socket()
    if socket is not None:
        paho.on_disconnect = None
        with suppress(OSError, ValueError):
            paho.disconnect()
            paho.loop_write()
        socket.close()


class Connection:
    """`open`, then the rest. `lost` is set at the end of the connection."""

    def __init__(self, config: BrokerConfig, plan: ConnectionPlan, on_message: Callable[[MQTTMessage], None]) -> None:
        self._config = config
        self._plan = plan
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._opened: asyncio.Future[bool] = self._loop.create_future()
        self._socket: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._unanswered = asyncio.Semaphore(MOST_UNANSWERED)
        self.lost = asyncio.Event()
        self.reason = "the connection is closed"
        """The reason for the end of the connection."""
        self.taken_over = False
        """Whether another client has continued the session."""
        self.largest: int | None = None
        """The largest packet that the broker accepts, in bytes; None: no limit."""
        self._paho = self._made()

    def _made(self) -> Client:
        made = Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._plan.client_id,
            protocol=MQTTv5,
            manual_ack=self._plan.acks,
            reconnect_on_failure=False,
        )
        user, password = credentials_of(self._config)
        if user is not None:
            made.username_pw_set(user, password)
        if (context := tls_of(self._config)) is not None:
            made.tls_set_context(context)
        made.connect_timeout = CONNECT
        made.max_inflight_messages = 0
        made.on_connect = self._connected
        made.on_disconnect = self._disconnected
        made.on_message = lambda _client, _data, message: self._on_message(message)
        made.on_publish = lambda _client, _data, mid, code, _properties: self._answered(mid, code)
        made.on_subscribe = lambda _client, _data, mid, codes, _properties: self._answered(mid, codes[0])
        made.on_unsubscribe = lambda _client, _data, mid, codes, _properties: self._answered(mid, None)
        return made

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> bool:
        """Connect to the first server that answers. Returns whether the broker has had the session already.

        Raises `BrokerUnavailable`.
        """
        errors: list[str] = []
        for server in sample(servers := servers_of(self._config), len(servers)):
            try:
                async with asyncio.timeout(2 * CONNECT):
                    self._opened = self._loop.create_future()  # a timeout has cancelled the last one
                    await self._connect(server)
                    return await self._opened
            except (OSError, TimeoutError, ValueError) as error:
                errors.append(f"{type(error).__name__}: {error}")
                self._close_socket()
            except BaseException:
                self._end("closed while it was opened")
                raise
        self._end("not connected")
        raise BrokerUnavailable(f"MQTT: {'; '.join(errors)}"[:300])

    async def _connect(self, server: str) -> None:
        host, _, port = server.rpartition(":") if server.rpartition(":")[2].isdigit() else (server, "", "")
        number = int(port) if port else (PORT if self._config.tls is None else TLS_PORT)
        settings = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        settings.SessionExpiryInterval = self._plan.expiry
        settings.ReceiveMaximum = self._plan.most
        clean = not self._plan.expiry
        paho = self._paho = self._made()  # a thread that connects to another server may still use the last one
        work = asyncio.to_thread(paho.connect, host.strip("[]"), number, KEEPALIVE, "", 0, clean, settings)
        connecting = asyncio.create_task(work)
        try:
            await asyncio.shield(connecting)
        except BaseException:
            connecting.add_done_callback(lambda _: _leave(paho))
            raise
        self._socket = paho.socket()
        if self._socket is None:
            raise BrokerUnavailable("MQTT: the broker has closed the connection")
        self._paho.on_socket_register_write = lambda *_: self._write_later()
        self._paho.on_socket_unregister_write = lambda *_: self._stop_writing()
        self._paho.on_socket_close = lambda _client, _data, socket: self._stop() if socket is self._socket else None
        if self._paho.want_write():
            self._write_later()
        self._tick()

    async def close(self, *, forget: bool = False) -> None:
        """Leave. With `forget` the broker forgets the session."""
        if self.lost.is_set() or self._socket is None:
            return
        leave = Properties(PacketTypes.DISCONNECT)  # type: ignore[no-untyped-call]
        if forget:
            leave.SessionExpiryInterval = 0
        with suppress(OSError, ValueError):
            self._paho.disconnect(properties=leave if forget else None)
            self._paho.loop_write()
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT):
                await self.lost.wait()
        self._end("closed")

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK, self._tick)
        if self._socket is not None:
            self._watched(self._loop.add_reader, self._read)  # for a socket that the loop has dropped
        self._paho.loop_misc()

    def _read(self) -> None:
        self._paho.loop_read()
        while isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            self._paho.loop_read()

    def _write_later(self) -> None:
        if self._socket is not None:
            self._watched(self._loop.add_writer, self._paho.loop_write)

    def _watched(self, add: Callable[[Any, Callable[[], object]], None], act: Callable[[], object]) -> None:
        """Let the loop call `act` when the socket is ready.

        uvloop drops a socket that the broker has reset, after one more read: packets that arrived before the reset hide
        the error from that read, and every later `add` raises `RuntimeError`.
        """
        socket = self._socket
        try:
            add(socket, act)
        except (OSError, RuntimeError) as error:
            self._end(f"the connection is lost: {error}")

    def _stop_writing(self) -> None:
        if self._socket is not None:
            self._loop.remove_writer(self._socket)

    def _stop(self) -> None:
        """Watch the socket no longer; the library is about to close it."""
        socket, self._socket = self._socket, None
        if socket is not None:
            self._loop.remove_reader(socket)
            self._loop.remove_writer(socket)
        if self._timer is not None:
            self._timer.cancel()

    def _close_socket(self) -> None:
        """Close what the library has left open. It would close it only when its memory is collected."""
        socket = self._socket
        self._stop()
        if socket is not None:
            socket.close()

    def _end(self, reason: str) -> None:
        self._close_socket()
        if not self.lost.is_set():
            self.reason = reason
            self.lost.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(BrokerUnavailable(f"MQTT: {self.reason}"))
        self._answers.clear()

    # ── packets ───────────────────────────────────────────────────────────────────────────────────────

    def _connected(self, _client: Any, _data: Any, flags: Any, code: Any, properties: Any) -> None:
        if self._opened.done():
            return
        if code.value >= _FAILED:
            self._opened.set_exception(BrokerUnavailable(f"MQTT: the broker refuses the connection: {code}"))
            return
        self.largest = getattr(properties, "MaximumPacketSize", None)
        most = min(MOST_UNANSWERED, getattr(properties, "ReceiveMaximum", MOST_UNANSWERED))
        self._unanswered = asyncio.Semaphore(most)
        self._opened.set_result(flags.session_present)

    def _disconnected(self, _client: Any, _data: Any, _flags: Any, code: Any, _properties: Any) -> None:
        self.taken_over = code.value == _TAKEN_OVER
        self._end(f"the connection is lost: {code}")
        if not self._opened.done():
            self._opened.set_exception(BrokerUnavailable(f"MQTT: {self.reason}"))

    def _answered(self, mid: int, code: Any) -> None:
        answer = self._answers.pop(mid, None)
        if answer is not None and not answer.done():
            answer.set_result(code)

    async def _answer(self, sent: Any, mid: int | None) -> Any:
        """The reason code of the answer to a packet. Raises `BrokerUnavailable`."""
        if sent in _LOST or mid is None or self.lost.is_set():
            raise BrokerUnavailable(f"MQTT: {self.reason}")
        answer = self._answers[mid] = self._loop.create_future()
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                return await answer
        except TimeoutError:
            self._answers.pop(mid, None)
            raise BrokerUnavailable("MQTT: the broker does not answer") from None

    async def subscribe(self, pattern: str, *, retained: bool = False) -> None:
        """Subscribe at QoS 1. Raises `BrokerUnavailable`."""
        retain = SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE if retained else SubscribeOptions.RETAIN_DO_NOT_SEND
        options = SubscribeOptions(qos=1, retainAsPublished=retained, retainHandling=retain)
        code = await self._answer(*self._paho.subscribe(pattern, options=options))
        if code.value >= _FAILED:
            raise BrokerUnavailable(f"MQTT: the broker refuses the subscription to {pattern}: {code}")

    async def unsubscribe(self, pattern: str) -> None:
        """End a subscription; messages that the session has stay in it. Raises `BrokerUnavailable`."""
        await self._answer(*self._paho.unsubscribe(pattern))

    async def publish(self, topic: str, body: bytes, properties: Properties | None, *, retain: bool = False) -> Any:
        """Publish at QoS 1. Returns the reason code of the broker.

        Raises `BrokerUnavailable`; `ValueError` and `MQTTException` for a message that MQTT has not.
        """
        async with self._unanswered:
            info = self._paho.publish(topic, body, 1, retain, properties)
            return await self._answer(info.rc, info.mid)

    def ack(self, mid: int) -> None:
        """Acknowledge a message."""
        self._paho.ack(mid, 1)
