"""gRPC's own server, with a method for each kind of call."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc

PATIENCE = 300.0
UNBOUNDED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Service(grpc.GenericRpcHandler):  # type: ignore[misc] # the package has no types
    """Methods of `/test.Service/`. `cancelled` is set once a call that hangs has been cancelled."""

    def __init__(self) -> None:
        self.hanging = threading.Event()
        self.cancelled = threading.Event()
        self.metadata: dict[str, Any] = {}

    def service(self, details: Any) -> Any:
        name = details.method.rpartition("/")[2].lower()
        kinds = {
            "echo": grpc.unary_unary_rpc_method_handler(self.echo),
            "squeeze": grpc.unary_unary_rpc_method_handler(self.squeeze),
            "fail": grpc.unary_unary_rpc_method_handler(self.fail),
            "reflect": grpc.unary_unary_rpc_method_handler(self.reflect),
            "hang": grpc.unary_unary_rpc_method_handler(self.hang),
            "total": grpc.stream_unary_rpc_method_handler(self.total),
            "count": grpc.unary_stream_rpc_method_handler(self.count),
            "late": grpc.unary_stream_rpc_method_handler(self.late),
            "talk": grpc.stream_stream_rpc_method_handler(self.talk),
        }
        return kinds.get(name)

    def echo(self, message: bytes, context: Any) -> bytes:
        return message

    def squeeze(self, message: bytes, context: Any) -> bytes:
        context.set_compression(grpc.Compression.Gzip if message else grpc.Compression.Deflate)
        return message * 1000 or b"x" * 1000

    def fail(self, message: bytes, context: Any) -> bytes:
        number, _, text = message.decode().partition(" ")
        code = next(code for code in grpc.StatusCode if code.value[0] == int(number))
        context.set_trailing_metadata((("x-why", "because"), ("x-data-bin", b"\0\xff")))
        context.abort(code, text)
        raise AssertionError

    def reflect(self, message: bytes, context: Any) -> bytes:
        self.metadata = dict(context.invocation_metadata())
        self.metadata["left"] = context.time_remaining()
        context.send_initial_metadata((("x-first", "1"),))
        context.set_trailing_metadata((("x-last", "2"),))
        return message

    def hang(self, message: bytes, context: Any) -> bytes:
        context.add_callback(self.cancelled.set)
        self.hanging.set()
        self.cancelled.wait(PATIENCE)
        return b""

    def total(self, messages: Iterator[bytes], context: Any) -> bytes:
        return b"%d" % sum(map(len, messages))

    def count(self, message: bytes, context: Any) -> Iterator[bytes]:
        for i in range(int(message)):
            yield b"%d" % i

    def late(self, message: bytes, context: Any) -> Iterator[bytes]:
        yield b"one"
        context.abort(grpc.StatusCode.ABORTED, "after one")

    def talk(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        yield from messages


@asynccontextmanager
async def grpcio_serving(service: Service, *options: tuple[str, Any], address: str = "") -> AsyncIterator[str]:
    """A server of `service`; gives its URL."""
    server = grpc.server(ThreadPoolExecutor(16), handlers=[service], options=[*UNBOUNDED, *options])
    port = server.add_insecure_port(address or "127.0.0.1:0")
    server.start()
    try:
        yield address or f"http://127.0.0.1:{port}"
    finally:
        service.cancelled.set()
        await asyncio.to_thread(server.stop(None).wait)
