"""Frames that the standard allows and other clients send: valid frames work, invalid frames are reported."""

import asyncio

import h2.events
import h2.settings
import pytest

from adapters.http2 import frames
from adapters.http2.fields import encode
from adapters.http2.frames import END_HEADERS, END_STREAM, PADDED, WITH_PRIORITY, ErrorCode, frame
from adapters.http2.status import Code
from tests.adapters.http2.peer import GREETING, connected, framed, request
from tests.adapters.http2.served import Methods, serving
from tests.hostile.corpus.cases import cases

ECHO = encode([(name.encode(), value.encode()) for name, value in request()])
HELLO = framed(b"hello")


def head(stream_id: int = 1, flags: int = END_HEADERS, block: bytes = ECHO) -> bytes:
    return frame(frames.HEADERS, flags, stream_id, block)


def data(payload: bytes, stream_id: int = 1, flags: int = END_STREAM) -> bytes:
    return frame(frames.DATA, flags, stream_id, payload)


async def test_a_call_and_its_answer() -> None:
    async with serving(Methods()) as served, connected(served.port) as peer:
        answer = await peer.request(request(), HELLO)
        assert (answer.head[":status"], answer.head["content-type"]) == ("200", "application/grpc")
        assert "gzip" in answer.head["grpc-accept-encoding"]
        assert (answer.messages, answer.status, answer.reset) == ([b"hello"], 0, None)
        answer = await peer.request(request("/nobody"), HELLO)
        assert (answer.status, answer.data, answer.trailers) == (Code.UNIMPLEMENTED, b"", {})
        await served.quiet()


@pytest.mark.parametrize(
    "sent",
    [
        head() + data(HELLO),
        head() + data(HELLO, flags=0) + data(b""),
        head() + b"".join(data(HELLO[i : i + 1], flags=0) for i in range(10)) + data(b""),
        head() + data(b"\3" + HELLO + b"\0\0\0", flags=END_STREAM | PADDED),
        head(flags=END_HEADERS | PADDED | WITH_PRIORITY, block=b"\2\0\0\0\3\x10" + ECHO + b"\0\0") + data(HELLO),
        head(flags=0, block=ECHO[:5]) + frame(9, 0, 1, ECHO[5:9]) + frame(9, END_HEADERS, 1, ECHO[9:]) + data(HELLO),
        head(flags=0, block=b"") + frame(9, END_HEADERS, 1, ECHO) + data(HELLO),
        head() + frame(0xBE, 0xFF, 7, b"?") + frame(frames.PRIORITY, 0, 9, bytes(5)) + data(HELLO),
        head() + data(HELLO, flags=0) + head(flags=END_HEADERS | END_STREAM, block=encode([(b"x-t", b"1")])),
        head(stream_id=1 | 1 << 31) + data(HELLO),
    ],
    ids=[
        "plain", "an end of its own", "bytes", "padded", "priority", "continued", "all in one", "unknown", "trailers",
        "reserved",
    ],
)  # fmt: skip
async def test_frames_that_mean_the_same(sent: bytes) -> None:
    async with serving(Methods()) as served:
        for cut in (len(sent), 1, 7):
            async with connected(served.port) as peer:
                peer.acks = False  # its answer to our settings must not come between the pieces
                peer.h2.send_headers(1, request())
                peer.h2.data_to_send()
                for at in range(0, len(sent), cut):
                    peer.send(sent[at : at + cut])
                    await asyncio.sleep(0)
                answer = await peer.answer(1)
                assert (answer.messages, answer.status) == ([b"hello"], 0)


async def test_several_messages_in_a_frame_and_one_in_many() -> None:
    async with serving(Methods()) as served, connected(served.port) as peer:
        messages = [b"", b"a", b"b" * 40_000, b"", b"c"]
        answer = await peer.request(request("/test.Service/Talk"), b"".join(map(framed, messages)))
        assert (answer.messages, answer.status) == (messages, 0)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", Code.UNIMPLEMENTED),  # no message
        (HELLO + HELLO, Code.UNIMPLEMENTED),  # two
        (HELLO[:-1], Code.INTERNAL),
        (b"\0\0", Code.INTERNAL),
        (framed(b"hello", flag=1), Code.INTERNAL),
        (framed(b"hello", flag=7), Code.INTERNAL),
        (b"\0\xff\xff\xff\xff", Code.RESOURCE_EXHAUSTED),
    ],
)
async def test_messages_that_are_wrong(sent: bytes, status: Code) -> None:
    async with serving(Methods()) as served, connected(served.port) as peer:
        answer = await peer.request(request(), sent)
        assert answer.status == status
        assert (await peer.request(request(), HELLO)).status == 0
        await served.quiet()


@pytest.mark.parametrize(
    "changes",
    [
        {":method": None}, {":path": None}, {":scheme": None}, {":path": ""}, {":path": "Echo"}, {"X-Upper": "a"},
        {"connection": "close"}, {"transfer-encoding": "chunked"}, {"te": "gzip"}, {":protocol": "websocket"},
        {"x-a": "a\0b"}, {"x-a": "a\r\nb"}, {"x a": "a"}, {"": "a"},
    ],
)  # fmt: skip
async def test_a_head_that_is_no_request(changes: dict[str, str | None]) -> None:
    fields = {**dict(request()), **changes}
    async with serving(Methods()) as served, connected(served.port) as peer:
        stream_id = peer.call([(name, value) for name, value in fields.items() if value is not None], HELLO)
        assert (await peer.answer(stream_id)).reset == ErrorCode.PROTOCOL_ERROR
        assert (await peer.request(request(), HELLO)).status == 0


async def test_pseudo_fields_twice_or_late() -> None:
    async with serving(Methods()) as served, connected(served.port) as peer:
        for fields in ([*request(), (":path", "/b")], [(":path", "/b"), *request()], [*request()[1:], request()[0]]):
            stream_id = peer.call(fields, HELLO)
            assert (await peer.answer(stream_id)).reset == ErrorCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({":method": "GET"}, "405"), ({"content-type": "application/json"}, "415"), ({"content-type": None}, "415"),
        ({"content-type": "application/grpcx"}, "415"), ({"content-type": "application/grpc-web"}, "415"),
    ],
)  # fmt: skip
async def test_requests_that_are_not_grpc(changes: dict[str, str | None], status: str) -> None:
    fields = {**dict(request()), **changes}
    async with serving(Methods()) as served, connected(served.port) as peer:
        stream_id = peer.call([(name, value) for name, value in fields.items() if value is not None], HELLO)
        answer = await peer.answer(stream_id)
        assert (answer.head[":status"], answer.ended) == (status, True)
        assert (await peer.request(request(), HELLO)).status == 0


@pytest.mark.parametrize("kind", ["application/grpc+proto", "application/grpc;charset=utf-8", "Application/gRPC"])
async def test_requests_that_are(kind: str) -> None:
    async with serving(Methods()) as served, connected(served.port) as peer:
        assert (await peer.request(request(content_type=kind), HELLO)).messages == [b"hello"]


async def test_fields_of_grpc_that_are_wrong() -> None:
    async with serving(Methods()) as served, connected(served.port) as peer:
        answer = await peer.request(request(grpc_timeout="soon"), HELLO)
        assert answer.status == Code.INVALID_ARGUMENT
        answer = await peer.request(request(grpc_encoding="snappy"), HELLO)
        assert answer.status == Code.UNIMPLEMENTED
        assert answer.head["grpc-accept-encoding"] == "identity,deflate,gzip"
        assert "snappy" in answer.head["grpc-message"]


async def test_metadata_that_is_too_large_fails_its_call_only() -> None:
    async with serving(Methods()) as served, connected(served.port) as peer:
        for _ in range(2):
            answer = await peer.request(request(x_long="a" * 20_000, x_longer="b" * 20_000), HELLO)
            assert answer.status == Code.RESOURCE_EXHAUSTED
        assert (await peer.request(request(x_a="a"), HELLO)).status == 0


async def test_an_answer_respects_windows_that_open_slowly() -> None:
    message = bytes(range(256)) * 1000
    async with serving(Methods()) as served, connected(served.port, start=False) as peer:
        peer.h2.local_settings = h2.settings.Settings(
            client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0}
        )
        peer.takes_data = False
        peer.start()
        stream_id = peer.call(request("/test.Service/Talk"), framed(message[:16_000]), end=False)
        await peer.until(lambda: peer.answers.get(stream_id) and peer.answers[stream_id].head)
        for increment in (1, 4, 5, 15_995):
            before = len(peer.answers[stream_id].data)
            peer.h2.increment_flow_control_window(increment, stream_id)
            peer.flush()
            await peer.until(lambda before=before, n=increment: len(peer.answers[stream_id].data) == before + n)  # type: ignore[misc]
        peer.h2.end_stream(stream_id)
        peer.flush()
        answer = await peer.answer(stream_id)
        assert (answer.messages, answer.status) == ([message[:16_000]], 0)
        await served.quiet()


async def test_a_window_that_the_settings_shrink_below_nothing() -> None:
    """The stream's window is negative until it has been given back."""
    async with serving(Methods()) as served, connected(served.port) as peer:
        peer.takes_data = False
        stream_id = peer.call(request("/test.Service/Talk"), framed(bytes(30_000)), end=False)
        await peer.until(lambda: stream_id in peer.answers and len(peer.answers[stream_id].data) == 30_005)
        peer.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10_000})
        peer.flush()
        await peer.until(lambda: any(isinstance(e, h2.events.SettingsAcknowledged) for e in peer.events[2:]))
        peer.h2.send_data(stream_id, framed(bytes(1000)))
        peer.h2.ping(b"12345678")
        peer.flush()
        await peer.until(lambda: any(isinstance(e, h2.events.PingAckReceived) for e in peer.events))
        assert len(peer.answers[stream_id].data) == 30_005
        peer.h2.increment_flow_control_window(30_000, stream_id)
        peer.flush()
        await peer.until(lambda: len(peer.answers[stream_id].data) == 31_010)


async def test_many_answers_share_a_narrow_connection() -> None:
    """The connection's window is a third of the total demand: each stream gets its turns."""
    async with serving(Methods()) as served, connected(served.port) as peer:
        ids = [peer.call(request("/test.Service/Count"), framed(b"400")) for _ in range(60)]
        for stream_id in ids:
            answer = await peer.answer(stream_id)
            assert answer.messages == [b"%d" % i for i in range(400)]
        await served.quiet()


async def test_pings_are_answered() -> None:
    async with serving(Methods()) as served, connected(served.port) as peer:
        peer.h2.ping(b"abcdefgh")
        peer.flush()
        await peer.until(lambda: any(isinstance(e, h2.events.PingAckReceived) for e in peer.events))


async def test_an_early_end_stops_the_client_from_sending() -> None:
    async with serving(Methods()) as served, connected(served.port) as peer:
        stream_id = peer.call(request("/nobody"), HELLO, end=False)
        answer = await peer.answer(stream_id)
        assert answer.status == Code.UNIMPLEMENTED
        await peer.until(lambda: any(isinstance(e, h2.events.StreamReset) for e in peer.events))
        reset = next(e for e in peer.events if isinstance(e, h2.events.StreamReset))
        assert reset.error_code == ErrorCode.NO_ERROR
        # Frames in flight are ignored.
        peer.send(data(bytes(100), stream_id))
        assert (await peer.request(request(), HELLO)).status == 0


async def test_late_frames_of_an_ended_stream_are_ignored() -> None:
    async with serving(Methods()) as served, connected(served.port) as peer:
        stream_id = peer.call(request(), HELLO)
        assert (await peer.answer(stream_id)).status == 0
        peer.send(frames.window_update(stream_id, 5) + frames.rst_stream(stream_id, ErrorCode.CANCEL))
        peer.send(data(b"??", stream_id) + head(stream_id, END_HEADERS | END_STREAM, encode([(b"x-late", b"1")])))
        assert (await peer.request(request(), HELLO)).status == 0


async def test_a_client_that_sends_goaway_receives_its_answers() -> None:
    async with serving(Methods()) as served, connected(served.port) as peer:
        stream_id = peer.call(request("/test.Service/Talk"), HELLO, end=False)
        peer.send(frames.goaway(0, ErrorCode.NO_ERROR))
        await peer.until(lambda: stream_id in peer.answers and peer.answers[stream_id].messages == [b"hello"])


BEGUN = GREETING + head()
WRONG = {
    case.name: (case.sent, ErrorCode(case.code))
    for case in cases("http2")
    if case.file == "connection" and case.code is not None
}
"""The cases of the corpus, and those that only this server refuses by their first bytes."""
WRONG |= {
    "frame that announces 1 MiB": (GREETING + b"\x10\0\1\0\0\0\0\0\1", ErrorCode.FRAME_SIZE_ERROR),
    "head of 100 KiB": (GREETING + b"\1\x90\0\1\4\0\0\0\1", ErrorCode.FRAME_SIZE_ERROR),
}


@pytest.mark.parametrize(("sent", "code"), WRONG.values(), ids=WRONG)
async def test_a_protocol_error_is_reported_and_ends_the_connection(sent: bytes, code: ErrorCode) -> None:
    methods = Methods()
    async with serving(methods) as served, connected(served.port, start=False) as peer:
        peer.h2.initiate_connection()
        peer.h2.send_headers(1, request())
        peer.h2.data_to_send()
        peer.acks = False
        peer.send(sent)
        assert await peer.end() == code
        await served.quiet()
        async with connected(served.port) as other:
            assert (await other.request(request(), HELLO)).status == 0


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frames.window_update(1, 0), ErrorCode.PROTOCOL_ERROR),
        (frames.window_update(1, 2**31 - 1), ErrorCode.FLOW_CONTROL_ERROR),
        (data(HELLO) + data(b"more"), ErrorCode.STREAM_CLOSED),
        (head(block=encode([(b"x-t", b"1")])), ErrorCode.PROTOCOL_ERROR),
        (data(HELLO) + head(flags=END_HEADERS | END_STREAM, block=b""), ErrorCode.PROTOCOL_ERROR),
    ],
)
async def test_a_stream_that_breaks_the_protocol_is_reset_alone(sent: bytes, code: ErrorCode) -> None:
    methods = Methods()
    async with serving(methods) as served, connected(served.port) as peer:
        stream_id = peer.call(request("/test.Service/Hang"), end=False)
        peer.send(sent)
        assert (await peer.answer(stream_id)).reset == code
        assert (await peer.request(request(), HELLO)).status == 0
        await peer.until(lambda: methods.ends == ["cancelled"] * methods.begun)
        await served.quiet()
