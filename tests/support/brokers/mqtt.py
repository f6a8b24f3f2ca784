"""MQTT 5: mosquitto, whose sessions and messages are on disk when it stops."""

import asyncio
import getpass
import signal
import struct
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.brokers.broker import RealBroker, Seen
from tests.support.debian import binary

NO_SUBSCRIBERS = 0x10
READ_BY_GATEWAYS = ("requests", "work")
MAGIC, MESSAGE_OF_CLIENT = b"\x00\xb5\x00mosquitto db", 3
"""The begin of mosquitto's file, and the kind of its chunks that are messages of sessions."""


class Answers:
    """The reason codes of one connection by the identifiers of packets."""

    def __init__(self) -> None:
        self._codes: dict[int | None, Any] = {}
        self._changed = threading.Condition()
        self._ended = False

    def put(self, mid: int, code: Any) -> None:
        with self._changed:
            self._codes[mid] = code
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait(self, mid: int | None) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: mid in self._codes or self._ended, timeout=20)
            if mid not in self._codes:
                raise ConnectionError
            return self._codes.pop(mid)


class MqttBroker(RealBroker):
    """The test's client subscribes to all topics of answers, and its session outlives the broker's restarts."""

    name = "mqtt"
    anonymous = "true"
    settings: tuple[str, ...] = ()
    """Further lines of the configuration."""

    @property
    def url(self) -> str:  # type: ignore[override]
        return f"mqtt://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        settings = self.folder / "mosquitto.conf"
        lines = [f"listener {self.port} 127.0.0.1", f"allow_anonymous {self.anonymous}", "persistence true"]
        lines += [f"persistence_location {self.folder}/", "max_queued_messages 0", f"user {getpass.getuser()}"]
        settings.write_text("\n".join([*lines, *self.settings]) + "\n")
        return [binary("mosquitto", "mosquitto", "/usr/sbin"), "-c", str(settings)]

    def kill(self) -> None:
        """Stop the server. It writes its messages at its end only: a killed one loses them, whatever its clients do."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()
            self._process = None

    async def connect(self) -> None:
        if not hasattr(self, "_seen"):
            self._seen: dict[str, list[Seen]] = defaultdict(list)
            self._topics: list[str] = []
        answers = self._answers = Answers()
        client = self._client = Client(CallbackAPIVersion.VERSION2, client_id="test", protocol=MQTTv5)
        client.on_message = self._received
        client.on_publish = lambda _c, _d, mid, code, _p: answers.put(mid, code)
        client.on_subscribe = lambda _c, _d, mid, codes, _p: answers.put(mid, codes[0])
        session = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        session.SessionExpiryInterval = 3600
        client.connect("127.0.0.1", self.port, clean_start=False, properties=session)
        client.loop_start()
        await self.topics(*self._topics)

    async def disconnect(self) -> None:
        self._client.disconnect()
        self._answers.end()
        await asyncio.to_thread(self._client.loop_stop)

    def _received(self, client: Client, data: object, message: MQTTMessage) -> None:
        pairs = dict(getattr(message.properties, "UserProperty", ()))
        headers = {(name if "-" in name else f"ce_{name}"): value for name, value in pairs.items()}
        if content_type := getattr(message.properties, "ContentType", None):
            headers["content-type"] = content_type
        key = headers.get("ce_partitionkey", "").encode()
        self._seen[message.topic].append(Seen(bytes(message.payload), headers, key))

    async def topics(self, *names: str) -> None:
        for name in names:
            if name not in READ_BY_GATEWAYS:
                self._topics = list({*self._topics, name})
                _, mid = self._client.subscribe(name, qos=1)
                await asyncio.to_thread(self._answers.wait, mid)

    async def send(self, topic: str, body: bytes, headers: Mapping[str, str], key: bytes = b"") -> None:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = [
            (n.removeprefix("ce_"), value) for n, value in headers.items() if n != "content-type"
        ]
        if content_type := headers.get("content-type"):
            properties.ContentType = content_type
        if key:
            properties.UserProperty = ("partitionkey", key.decode())
        while True:
            answers = self._answers
            info = self._client.publish(topic, body, 1, properties=properties)
            code = await asyncio.to_thread(answers.wait, info.mid)
            if code.value != NO_SUBSCRIBERS:
                return
            await asyncio.sleep(0.05)  # no gateway has a session yet

    async def messages(self, topic: str) -> list[Seen]:
        return list(self._seen[topic])

    async def unsettled(self, topic: str, group: str) -> int:
        """Messages in the sessions of gateways, as the broker writes them to its file now."""
        path = self.folder / "mosquitto.db"
        path.unlink(missing_ok=True)
        self.signal(signal.SIGUSR1)
        async with asyncio.timeout(300):
            while not path.exists():
                await asyncio.sleep(0.02)
        return sum(b"headrace-" in chunk for kind, chunk in _chunks(path.read_bytes()) if kind == MESSAGE_OF_CLIENT)


def _chunks(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The chunks of mosquitto's file, whose names of clients are text."""
    assert data.startswith(MAGIC)
    at = len(MAGIC) + 8
    while at < len(data):
        kind, size = struct.unpack_from("!II", data, at)
        yield kind, data[at + 8 : at + 8 + size]
        at += 8 + size
