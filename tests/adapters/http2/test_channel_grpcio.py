"""Our client against gRPC's own server."""

import asyncio
import os
from pathlib import Path

import pytest

from adapters.errors import DeadlineError, TransportError, UpstreamTimeout
from adapters.http2.channel import encode_fields
from adapters.http2.exchange import Exchange
from adapters.http2.status import Code, GrpcError
from adapters.types import Deadline
from tests.adapters.http1.raw import until
from tests.adapters.http2.channels import calling, soon
from tests.adapters.http2.grpcio_server import PATIENCE, Service, grpcio_serving

pytestmark = pytest.mark.realtime

MiB = 1024 * 1024
ECHO = b"/test.Service/Echo"


async def rest(exchange: Exchange) -> list[bytes]:
    """All messages to the end."""
    messages = []
    while (message := await exchange.read()) is not None:
        messages.append(message)
    return messages


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_380, 70_000, 5 * MiB])
async def test_a_message_there_and_back(size: int) -> None:
    message = os.urandom(size)
    async with grpcio_serving(Service()) as url, calling(url) as channel:
        assert await channel.unary(ECHO, message, deadline=soon(channel)) == message


async def test_messages_of_8_mib_in_parallel() -> None:
    messages = [os.urandom(8 * MiB) for _ in range(3)]
    async with grpcio_serving(Service()) as url, calling(url) as channel:
        answers = await asyncio.gather(*[channel.unary(ECHO, m, deadline=soon(channel)) for m in messages])
        assert answers == messages
        assert channel.connections == 1


async def test_streams_of_each_kind() -> None:
    async with grpcio_serving(Service()) as url, calling(url) as channel:
        total = await channel.stream(b"/test.Service/Total", deadline=soon(channel))
        for _ in range(20):
            await total.write(bytes(100_000))
        total.half_close()
        assert await rest(total) == [b"2000000"]
        count = await channel.stream(b"/test.Service/Count", deadline=soon(channel))
        await count.write(b"500")
        count.half_close()
        assert await rest(count) == [b"%d" % i for i in range(500)]
        talk = await channel.stream(b"/test.Service/Talk", deadline=soon(channel))
        for i in range(20):
            await talk.write(b"%d" % i)
            assert await talk.read() == b"%d" % i
        talk.half_close()
        assert await rest(talk) == []


async def test_metadata_and_deadline_arrive() -> None:
    service = Service()
    async with grpcio_serving(service) as url, calling(url) as channel:
        fields = encode_fields([("authorization", "Bearer x"), ("x-data-bin", b"\0\xff")])
        stream = await channel.stream(b"/test.Service/Reflect", fields, soon(channel))
        await stream.write(b"hello")
        stream.half_close()
        assert await rest(stream) == [b"hello"]
        assert stream.initial_metadata["x-first"] == "1"
        assert stream.trailers["x-last"] == "2"
    assert service.metadata["authorization"] == "Bearer x"
    assert service.metadata["x-data-bin"] == b"\0\xff"
    assert "headrace" in service.metadata["user-agent"]
    assert 0 < service.metadata["left"] <= PATIENCE * 1.12


async def test_a_call_without_a_deadline() -> None:
    service = Service()
    async with grpcio_serving(service) as url, calling(url) as channel:
        assert await channel.unary(b"/test.Service/Reflect", b"x") == b"x"
    assert service.metadata["left"] is None or service.metadata["left"] > 10**6


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
async def test_every_status_arrives_with_its_words(code: Code) -> None:
    text = "100 % of “it”:\n\tgone"
    async with grpcio_serving(Service()) as url, calling(url) as channel:
        with pytest.raises(GrpcError) as caught:
            await channel.unary(b"/test.Service/Fail", f"{code} {text}".encode(), deadline=soon(channel))
    assert (caught.value.code, caught.value.message) == (code, text)
    assert dict(caught.value.trailers)["x-why"] == "because"
    assert dict(caught.value.trailers)["x-data-bin"] == b"\0\xff"


async def test_a_failure_behind_a_message() -> None:
    async with grpcio_serving(Service()) as url, calling(url) as channel:
        late = await channel.stream(b"/test.Service/Late", deadline=soon(channel))
        await late.write(b"")
        late.half_close()
        assert await late.read() == b"one"
        with pytest.raises(GrpcError) as caught:
            await late.read()
    assert (caught.value.code, caught.value.message) == (Code.ABORTED, "after one")


async def test_a_method_that_does_not_exist() -> None:
    async with grpcio_serving(Service()) as url, calling(url) as channel:
        with pytest.raises(GrpcError) as caught:
            await channel.unary(b"/test.Service/Nothing", b"", deadline=soon(channel))
    assert caught.value.code == Code.UNIMPLEMENTED


async def test_compressed_answers() -> None:
    async with grpcio_serving(Service()) as url, calling(url) as channel:
        assert await channel.unary(b"/test.Service/Squeeze", b"a", deadline=soon(channel)) == b"a" * 1000
        assert await channel.unary(b"/test.Service/Squeeze", b"", deadline=soon(channel)) == b"x" * 1000
        assert await channel.unary(b"/test.Service/Squeeze", b"b" * 500, deadline=soon(channel)) == b"b" * 500_000


async def test_an_answer_that_is_too_long() -> None:
    async with grpcio_serving(Service()) as url, calling(url, max_message=1000) as channel:
        for method, message in ((b"Echo", bytes(1001)), (b"Squeeze", b"ab")):
            with pytest.raises(GrpcError) as caught:
                await channel.unary(b"/test.Service/" + method, message, deadline=soon(channel))
            assert caught.value.code == Code.RESOURCE_EXHAUSTED
        assert await channel.unary(ECHO, bytes(1000), deadline=soon(channel)) == bytes(1000)


async def test_leaving_cancels_the_call() -> None:
    service = Service()
    async with grpcio_serving(service) as url, calling(url) as channel:
        waiting = asyncio.create_task(channel.unary(b"/test.Service/Hang", b"", deadline=soon(channel)))
        await until(service.hanging.is_set)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(service.cancelled.is_set)
        assert await channel.unary(ECHO, b"x", deadline=soon(channel)) == b"x"
        assert channel.connections == 1


@pytest.mark.parametrize(
    ("deadline", "error"), [(Deadline(0.2, 9, 9), DeadlineError), (Deadline(9, 0.2, 9), UpstreamTimeout)]
)
async def test_an_upstream_that_hangs(deadline: Deadline, error: type[Exception]) -> None:
    service = Service()
    async with grpcio_serving(service) as url, calling(url) as channel:
        assert await channel.unary(ECHO, b"x", deadline=soon(channel)) == b"x"
        with pytest.raises(error):
            await channel.unary(b"/test.Service/Hang", b"", deadline=deadline._replace(at=channel.now() + deadline.at))
        await until(service.cancelled.is_set)


async def test_a_thousand_calls_at_once() -> None:
    async with grpcio_serving(Service()) as url, calling(url) as channel:
        answers = await asyncio.gather(*[channel.unary(ECHO, b"%d" % i, deadline=soon(channel)) for i in range(1000)])
        assert answers == [b"%d" % i for i in range(1000)]
        assert 2 <= channel.connections <= 16


async def test_an_upstream_that_allows_few_calls_gets_more_connections() -> None:
    service = Service()
    async with grpcio_serving(service, ("grpc.max_concurrent_streams", 5)) as url, calling(url) as channel:
        answers = await asyncio.gather(*[channel.unary(ECHO, b"%d" % i, deadline=soon(channel)) for i in range(40)])
        assert answers == [b"%d" % i for i in range(40)]
        assert 2 <= channel.connections <= 16


async def test_an_upstream_that_sends_its_clients_away_loses_no_call() -> None:
    options = (("grpc.max_connection_age_ms", 100), ("grpc.max_connection_age_grace_ms", 20_000))
    async with grpcio_serving(Service(), *options) as url, calling(url) as channel:
        used: set[object] = set()  # the connections, not their ids: Python reuses the id of a deleted object
        async with asyncio.timeout(PATIENCE):
            while len(used) < 3:
                assert await channel.unary(ECHO, b"x", deadline=soon(channel)) == b"x"
                used.update(channel._usable)
                await asyncio.sleep(0.001)


async def test_a_unix_socket(tmp_path: Path) -> None:
    async with grpcio_serving(Service(), address=f"unix:{tmp_path}/s") as url, calling(url) as channel:
        assert await channel.unary(ECHO, b"x", deadline=soon(channel)) == b"x"


async def test_an_upstream_that_stops() -> None:
    service = Service()
    async with grpcio_serving(service) as url, calling(url) as channel:
        assert await channel.unary(ECHO, b"x", deadline=soon(channel)) == b"x"
    async with calling(url) as channel:
        with pytest.raises(TransportError):
            await channel.unary(ECHO, b"x", deadline=soon(channel))
