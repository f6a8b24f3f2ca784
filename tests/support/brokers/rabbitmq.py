"""RabbitMQ: a server of one node with quorum queues, and a virtual host for each broker of a test."""

import asyncio
import itertools
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiormq import AMQPError, Connection, spec
from aiormq.abc import DeliveredMessage

from adapters.brokers.rabbitmq.connection import is_loss
from tests.support.brokers.broker import RealBroker, Seen, accepts, free_port
from tests.support.debian import binary

QUORUM = {"x-queue-type": "quorum"}
PREFIX = "cloudEvents:"
NAMES = "maps:get(directory_rev, maps:get(names, ra_system:fetch(quorum_queues)))"
"""The table of the names of quorum queues, which the server writes to disk half a second after a change or later."""
MOST_UNACKNOWLEDGED = 50_000
"""Messages that one consumer receives; AMQP has no number beyond 65,535."""
_numbers = itertools.count(1)


class RabbitServer:
    """A server on loopback. Its processes are one group, except for the port mapper `epmd`, which survives kills."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        self.folder = folder / "rabbitmq"
        self.folder.mkdir()
        self.port, self._distribution, self._mapper_port = free_port(), free_port(), free_port()
        self.node = f"headrace{self._distribution}@localhost"
        self._cookie = secrets.token_hex(10)
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text(self._cookie)
        cookie.chmod(0o400)
        (self.folder / "plugins").write_text("[].")
        (self.folder / "env.conf").write_text("")
        (self.folder / "rabbitmq.conf").write_text(f"log.console = true\nlog.file = false\n{settings}")
        self._mapper: subprocess.Popen[bytes] | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def _environment(self) -> dict[str, str]:
        quiet = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none"  # no thread waits for work at the cost of CPU time
        return {
            **os.environ,
            "HOME": str(self.folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._mapper_port),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{quiet} -kernel inet_dist_use_interface {{127,0,0,1}}",
        }

    def spawn(self) -> None:
        """Start the processes."""
        program = binary("rabbitmq-server", "rabbitmq-server", "/usr/lib/rabbitmq/bin")
        program = str(Path("/usr/lib/rabbitmq/bin/rabbitmq-server")) if os.geteuid() == 0 else program
        environment = self._environment()
        if self._mapper is None:
            self._mapper = subprocess.Popen(["epmd"], env=environment, stdout=subprocess.DEVNULL)
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [program], env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    @property
    def log(self) -> str:
        """The text that it has logged."""
        return (self.folder / "server.log").read_text()

    def is_ready(self) -> bool:
        """Whether it accepts connections. AssertionError with its log if it has ended."""
        assert self.process is not None
        assert self.process.poll() is None, self.log[-3000:]
        return accepts(self.port)

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        if self.process is not None:
            self.signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def close(self) -> None:
        self.kill()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()

    async def evaluate(self, expression: str) -> str:
        """The value of an Erlang expression in the server."""
        command = ["erl_call", "-c", self._cookie, "-sname", self.node, "-e"]
        pipe = asyncio.subprocess.PIPE
        running = await asyncio.create_subprocess_exec(*command, env=self._environment(), stdin=pipe, stdout=pipe)
        output, _ = await running.communicate(f"{expression}.\n".encode())
        value = output.decode().strip()
        assert value.startswith("{ok, "), f"{expression}: {value}"
        return value.removeprefix("{ok, ").removesuffix("}")


@contextmanager
def rabbitmq_server(folder: Path, settings: str = "") -> Iterator[RabbitServer]:
    """A running server, which several tests share."""
    server = RabbitServer(folder, settings)
    try:
        server.spawn()
        end = time.monotonic() + 300
        while not server.is_ready():
            assert time.monotonic() < end, "the server does not start"
            time.sleep(0.05)
        yield server
    finally:
        server.close()


class RabbitBroker(RealBroker):
    """A virtual host: of a shared server, or of one of its own, which may be killed."""

    name = "rabbitmq"

    def __init__(self, folder: Path, shared: RabbitServer | None = None) -> None:
        self.folder = folder
        self.shared = shared
        self.server = shared or RabbitServer(folder)
        self.port = self.server.port
        self.host = f"test{next(_numbers)}"
        self._made = False

    @property
    def url(self) -> str:  # type: ignore[override]
        return f"amqp://127.0.0.1:{self.port}/{self.host}"

    async def start(self) -> None:
        if self.shared is None:
            self.server.spawn()
            async with asyncio.timeout(300):
                while not self.server.is_ready():
                    await asyncio.sleep(0.05)
        if not self._made:
            host, right = f'<<"{self.host}">>', '<<".*">>'
            await self.server.evaluate(f'rabbit_vhost:add({host}, <<"test">>)')
            grant = "rabbit_auth_backend_internal:set_permissions"
            await self.server.evaluate(f'{grant}(<<"guest">>, {host}, {right}, {right}, {right}, <<"test">>)')
            self._made = True
        await self.connect()

    def kill(self) -> None:
        assert self.shared is None
        self.server.kill()

    def signal(self, number: int) -> None:
        assert self.shared is None
        self.server.signal(number)

    async def connect(self) -> None:
        async with asyncio.timeout(300):
            while True:  # the virtual host starts after the listener
                self._connection = Connection(self.url)
                try:
                    await self._connection.connect()
                    break
                except (AMQPError, OSError):
                    await asyncio.sleep(0.1)
        self._sender = await self._connection.channel(publisher_confirms=True)

    async def disconnect(self) -> None:
        await self._connection.close()

    async def topics(self, *names: str) -> None:
        for name in names:
            await self._sender.queue_declare(name, durable=True, arguments=dict(QUORUM))
        if self.shared is None:
            # A server that is killed before then starts the queue as a new one, which never elects a leader.
            await self.server.evaluate(f"dets:sync({NAMES})")

    async def send(
        self, topic: str, body: bytes, headers: Mapping[str, str], key: bytes = b"", **properties: Any
    ) -> None:
        fields = {name.replace("ce_", PREFIX, 1): value for name, value in headers.items() if name != "content-type"}
        if key:
            fields[f"{PREFIX}partitionkey"] = key.decode()
        given = spec.Basic.Properties(
            delivery_mode=2, headers=dict(fields), content_type=headers.get("content-type"), **properties
        )
        try:
            await self._sender.basic_publish(body, routing_key=topic, properties=given, mandatory=True)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise ConnectionError("the connection was closed") from None  # the library cancels what waits for it
        except Exception as error:
            if not is_loss(error):
                raise
            raise ConnectionError("the connection was closed") from error

    async def messages(self, topic: str) -> list[Seen]:
        """Read all, and return them to the queue."""
        channel = await self._connection.channel(publisher_confirms=False)
        seen, changed = list[Seen](), asyncio.Event()

        async def arrive(message: DeliveredMessage) -> None:
            seen.append(_seen(message))
            changed.set()

        try:
            count = await self.unsettled(topic)
            for _ in range(0, count, MOST_UNACKNOWLEDGED):  # a quorum queue sends 2,000 to a consumer without a limit
                await channel.basic_qos(prefetch_count=MOST_UNACKNOWLEDGED)
                await channel.basic_consume(topic, arrive)
            async with asyncio.timeout(300):
                while len(seen) < count:
                    changed.clear()
                    await changed.wait()
            return seen
        finally:
            await channel.close()

    async def unsettled(self, topic: str, group: str = "headrace") -> int:
        queue = topic if group == "headrace" else f"{topic}.{group}"
        # A query sees the commands that the leader has applied so far: after a restart, all of them with the next one.
        member, command = f"{{'{self.host}_{queue}', node()}}", "rabbit_fifo:make_garbage_collection()"
        query = f"{{ok, {{_, N}}, _}} = ra:leader_query({member}, fun rabbit_fifo:query_messages_total/1)"
        applied = f"case ra:process_command({member}, {command})"
        count, text = f"{applied} of {{ok, _, _}} -> {query}, N; Other -> {{unknown, Other}} end", ""
        try:
            async with asyncio.timeout(300):
                while not (text := await self.server.evaluate(count)).isdecimal():
                    await asyncio.sleep(0.1)  # after a kill, or on a busy machine, the queue's leader answers late
        except TimeoutError:
            raise AssertionError(f"the queue {queue} is not counted: {text}\n{self.server.log[-3000:]}") from None
        return int(text)

    async def consumers(self, queue: str) -> int:
        """The number of consumers of a queue."""
        return (await self._sender.queue_declare(queue, passive=True)).consumer_count or 0

    async def close(self) -> None:
        try:
            await self.disconnect()
        finally:
            if self.shared is None:
                self.server.close()


def _seen(message: DeliveredMessage) -> Seen:
    properties = message.header.properties
    fields = {name.replace(PREFIX, "ce_", 1): str(value) for name, value in (properties.headers or {}).items()}
    if properties.content_type:
        fields["content-type"] = properties.content_type
    return Seen(message.body, fields, fields.get("ce_partitionkey", "").encode())
