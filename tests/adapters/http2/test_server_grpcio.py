"""gRPC's own client, unchanged: every kind of call, and every way in which one ends."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from adapters.http2.accepted import Limits, Server
from adapters.http2.status import Code
from tests.adapters.http1.raw import until
from tests.adapters.http2.served import PATIENCE, UNBOUNDED, Methods, Served, in_thread, serving
from tests.support.loops import Reports

pytestmark = pytest.mark.realtime

MiB = 1024 * 1024


async def unary(served: Served, method: str, message: bytes = b"", **options: Any) -> bytes:
    """One call on a connection of its own."""

    def work() -> bytes:
        with served.channel() as channel:
            call = channel.unary_unary(f"/test.Service/{method}")
            return bytes(call(message, **{"timeout": PATIENCE, **options}))

    return await in_thread(work)


async def failing(served: Served, method: str, message: bytes = b"", **options: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        await unary(served, method, message, **options)
    return caught.value


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_380, 70_000, 5 * MiB])
async def test_a_message_there_and_back(size: int) -> None:
    message = os.urandom(size)
    async with serving(Methods()) as served:
        assert await unary(served, "Echo", message) == message
        await served.quiet()


async def test_messages_of_8_mib_in_parallel() -> None:
    messages = [os.urandom(8 * MiB) for _ in range(3)]

    def work() -> list[bytes]:
        with served.channel() as channel:
            call = channel.unary_unary("/test.Service/Echo")
            return [future.result() for future in [call.future(m, timeout=PATIENCE) for m in messages]]

    async with serving(Methods()) as served:
        assert await in_thread(work) == messages
        await served.quiet()


async def test_streams_of_each_kind() -> None:
    def work() -> tuple[bytes, list[bytes], list[bytes]]:
        with served.channel() as channel:
            total = channel.stream_unary("/test.Service/Total")(iter([b"a" * 100_000] * 20), timeout=PATIENCE)
            count = list(channel.unary_stream("/test.Service/Count")(b"500", timeout=PATIENCE))
            talk = list(channel.stream_stream("/test.Service/Talk")(iter([b"", b"one", b"two"]), timeout=PATIENCE))
        return total, count, talk

    async with serving(Methods()) as served:
        total, count, talk = await in_thread(work)
        await served.quiet()
    assert total == b"2000000"
    assert count == [b"%d" % i for i in range(500)]
    assert talk == [b"", b"one", b"two"]


async def test_a_talk_in_turns() -> None:
    def work() -> list[bytes]:
        answers: list[bytes] = []
        arrived = threading.Semaphore(0)

        def questions() -> Iterator[bytes]:
            for i in range(20):
                yield b"%d" % i
                assert arrived.acquire(timeout=PATIENCE)

        with served.channel() as channel:
            for answer in channel.stream_stream("/test.Service/Talk")(questions(), timeout=PATIENCE):
                answers.append(answer)
                arrived.release()
        return answers

    async with serving(Methods()) as served:
        assert await in_thread(work) == [b"%d" % i for i in range(20)]


async def test_metadata_in_front_and_behind() -> None:
    def work() -> tuple[dict[str, Any], dict[str, Any]]:
        with served.channel() as channel:
            call = channel.unary_unary("/test.Service/Reflect")
            sent = (("x-text", "one"), ("x-text", "two"), ("x-data-bin", b"\x01\x02\xff"))
            _, answered = call.with_call(b"", timeout=PATIENCE, metadata=sent)
            return dict(answered.initial_metadata()), dict(answered.trailing_metadata())

    async with serving(Methods()) as served:
        first, last = await in_thread(work)
    assert first["x-first"].split(",") == ["one", "two"]
    assert first["x-raw-bin"] == b"\0\xff"
    assert (last["x-last"], last["x-copy-bin"]) == ("end", b"\x01\x02\xff")


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
async def test_every_status_arrives_with_its_words(code: Code) -> None:
    text = "100 % of “it”:\n\tgone"
    async with serving(Methods()) as served:
        error = await failing(served, "Fail", f"{code} {text}".encode())
        assert (error.code().value[0], error.details()) == (code, text)
        assert dict(error.trailing_metadata())["x-why"] == "because"


async def test_a_message_that_is_very_long_is_cut_and_arrives() -> None:
    async with serving(Methods()) as served:
        error = await failing(served, "Fail", b"9 " + "…".encode() * 10_000)
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert error.details().startswith("…" * 600)


async def test_a_failure_behind_a_message() -> None:
    def work() -> tuple[list[bytes], grpc.RpcError]:
        received: list[bytes] = []
        with served.channel() as channel, pytest.raises(grpc.RpcError) as caught:
            received.extend(channel.unary_stream("/test.Service/Late")(b"", timeout=PATIENCE))
        return received, caught.value

    async with serving(Methods()) as served:
        _, error = await in_thread(work)
    assert (error.code(), error.details()) == (grpc.StatusCode.ABORTED, "after one")


async def test_a_method_that_does_not_exist() -> None:
    async with serving(Methods()) as served:
        error = await failing(served, "Nothing")
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_handler_that_breaks_fails_its_call_only(reports: Reports) -> None:
    async with serving(Methods()) as served:
        error = await failing(served, "Crash")
        assert error.code() is grpc.StatusCode.INTERNAL
        assert "ZeroDivision" not in error.details()
        assert await unary(served, "Echo", b"x") == b"x"
    assert isinstance(reports.pop()["exception"], ZeroDivisionError)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.parametrize("size", [10, 3 * MiB])
async def test_compressed_messages(compression: grpc.Compression, size: int) -> None:
    message = os.urandom(size // 2) + bytes(size // 2)
    async with serving(Methods()) as served:
        assert await unary(served, "Echo", message, compression=compression) == message


async def test_a_message_that_is_too_long_compressed_or_not() -> None:
    async with serving(Methods(), Limits(max_message=100_000)) as served:
        for options in ({}, {"compression": grpc.Compression.Gzip}):
            error = await failing(served, "Echo", bytes(100_001), **options)
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "100000" in error.details()
        assert await unary(served, "Echo", bytes(100_000)) == bytes(100_000)
        await served.quiet()


async def test_cancelling_ends_the_handler() -> None:
    methods = Methods()

    def work() -> None:
        with served.channel() as channel:
            future = channel.unary_unary("/test.Service/Hang").future(b"", timeout=PATIENCE)
            begun.wait(PATIENCE)
            future.cancel()
            ended.wait(PATIENCE)

    begun, ended = threading.Event(), threading.Event()
    async with serving(methods) as served:
        working = asyncio.create_task(in_thread(work))
        await until(lambda: methods.begun == 1)
        begun.set()
        await until(lambda: methods.ends == ["cancelled"])
        ended.set()
        await working
        await served.quiet()


async def test_a_deadline_ends_the_handler() -> None:
    methods = Methods()
    async with serving(methods) as served:
        error = await failing(served, "Hang", timeout=0.3)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: methods.ends == ["cancelled"])
        deadline = methods.seen[0].deadline
        assert deadline is not None
        # The client's own deadline, which is earlier by the time of the request's transfer, may end the handler.
        assert deadline <= asyncio.get_running_loop().time() + 0.3
        await served.quiet()


async def test_a_client_that_takes_nothing_holds_the_writer_back() -> None:
    methods = Methods()

    def work() -> None:
        with served.channel() as channel:
            answers = channel.unary_stream("/test.Service/Flood")(b"", timeout=PATIENCE)
            next(answers)
            begun.wait(PATIENCE)
            answers.cancel()
            ended.wait(PATIENCE)

    begun, ended = threading.Event(), threading.Event()
    async with serving(methods) as served:
        working = asyncio.create_task(in_thread(work))
        await until(lambda: any(c.outlet.unsent for c in served.server.connections))
        begun.set()
        await until(lambda: methods.ends == ["CancelledError"])
        ended.set()
        await working
        await served.quiet()


async def test_a_thousand_calls_at_once() -> None:
    def work() -> list[bytes]:
        with served.channel() as channel:
            call = channel.unary_unary("/test.Service/Echo")
            return [f.result() for f in [call.future(b"%d" % i, timeout=PATIENCE) for i in range(1000)]]

    async with serving(Methods()) as served:
        assert await in_thread(work) == [b"%d" % i for i in range(1000)]
        await served.quiet()


async def test_more_calls_than_the_server_allows_wait_for_their_turn() -> None:
    def work() -> list[bytes]:
        with served.channel() as channel:
            call = channel.unary_unary("/test.Service/Echo")
            return [f.result() for f in [call.future(b"%d" % i, timeout=PATIENCE) for i in range(100)]]

    async with serving(Methods(), Limits(max_streams=4)) as served:
        assert await in_thread(work) == [b"%d" % i for i in range(100)]


@pytest.mark.processes
async def test_a_client_with_frequent_keepalive_pings_stays_connected() -> None:
    options = [("grpc.keepalive_time_ms", 50), ("grpc.keepalive_permit_without_calls", 1)]

    def work() -> bytes:
        with grpc.insecure_channel(served.target, options=options) as channel:
            answer = channel.unary_unary("/test.Service/Hang").future(b"", timeout=PATIENCE)
            done.wait(PATIENCE)
            assert not answer.done()
            return bytes(channel.unary_unary("/test.Service/Echo")(b"still", timeout=PATIENCE))

    done = threading.Event()
    async with serving(Methods()) as served:
        working = asyncio.create_task(in_thread(work))
        await asyncio.sleep(0.5)
        done.set()
        assert await working == b"still"


async def test_a_drain_lets_calls_end_and_loses_none() -> None:
    """While one server drains, the client continues with the next server on the same socket."""
    answers: list[bytes] = []

    def work() -> None:
        with grpc.insecure_channel(f"127.0.0.1:{bound.getsockname()[1]}") as channel:
            call = channel.unary_unary("/test.Service/Echo")
            answers.extend(call(b"%d" % i, timeout=PATIENCE, wait_for_ready=True) for i in range(300))

    with socket.create_server(("127.0.0.1", 0)) as bound:
        methods = Methods()
        first, second = Server(methods), Server(Methods())
        first.listen_socket(bound)
        working = asyncio.create_task(in_thread(work))
        await until(lambda: len(methods.seen) > 100)
        draining = asyncio.create_task(first.drain(PATIENCE))
        await until(lambda: first.draining)
        second.listen_socket(bound)
        await working
        assert await draining
        await first.aclose()
        await second.aclose()
        await until(lambda: not first.connections and not second.connections)
    assert answers == [b"%d" % i for i in range(300)]


def in_own_loop(work: Callable[[grpc.aio.Channel], Any], target: str) -> Any:
    """gRPC's asyncio client in a thread and a loop of its own."""

    async def run() -> Any:
        async with asyncio.timeout(PATIENCE), grpc.aio.insecure_channel(target, options=UNBOUNDED) as channel:
            return await work(channel)

    return asyncio.run(run())


async def test_the_asyncio_client() -> None:
    async def work(channel: grpc.aio.Channel) -> tuple[list[bytes], list[bytes], grpc.aio.AioRpcError]:
        echo = channel.unary_unary("/test.Service/Echo")
        echoes = await asyncio.gather(*[echo(b"%d" % i) for i in range(50)])
        talk = channel.stream_stream("/test.Service/Talk")()
        talked = []
        for i in range(5):
            await talk.write(b"%d" % i)
            talked.append(await talk.read())
        await talk.done_writing()
        assert await talk.read() is grpc.aio.EOF
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/test.Service/Fail")(b"9 no")
        return echoes, talked, caught.value

    async with serving(Methods()) as served:
        echoes, talked, error = await in_thread(lambda: in_own_loop(work, served.target))
        await served.quiet()
    assert echoes == [b"%d" % i for i in range(50)]
    assert talked == [b"%d" % i for i in range(5)]
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
