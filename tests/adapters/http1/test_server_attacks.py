"""Request smuggling, header injection and plain abuse on the wire, and the answers to them.

Each refused case is followed by a request that only a server which lost count would answer.
"""

import asyncio

import pytest

from adapters.http1.message import Request, Response
from adapters.http1.server import Limits
from tests.adapters.http1.raw import Echo, Raw, Served, get, post, serving, until
from tests.hostile.corpus.cases import CANARY, cases
from tests.support.loops import Reports

LIMITS = Limits(max_head=4096, max_headers=20, max_body=1000, max_pipelined=4)
CHUNKED = "Transfer-Encoding: chunked"


def chunked(body: bytes) -> bytes:
    return post(CHUNKED, body=body)


REFUSED = {
    case.name: (case.sent, case.status)
    for case in cases("http1")
    if case.expect == "refused" and case.status and case.file not in ("sizes", "endless_bodies")
}
"""The part of the corpus that is refused under any limits."""
OVERSIZED = {
    "one field too many": get("/", *[f"X-{i}: a" for i in range(20)]),
    "one field too large": get("/", "X-A: " + "a" * 5000),
    "fields too large together": get("/", *[f"X-{i}: " + "a" * 500 for i in range(10)]),
    "target too large": get("/" + "a" * 5000),
    "target too large by its query": get("/?" + "a" * 5000),
}
REFUSED |= {name: (sent, 431) for name, sent in OVERSIZED.items()}


async def deliver(served: Served, data: bytes, by_byte: bool) -> Raw:
    """Send the data at once, or hand it to the parser in pieces of a byte."""
    client = await served.connect()
    connection = await served.accepted()
    if by_byte:
        for byte in data:
            connection.data_received(bytes([byte]))
    else:
        client.send(data)
    return client


@pytest.mark.parametrize("by_byte", [False, True])
@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED.keys())
async def test_refused_once_and_closed(data: bytes, status: int, by_byte: bool) -> None:
    echo = Echo()
    async with serving(echo, LIMITS) as served:
        client = await deliver(served, data + CANARY, by_byte)
        [reply] = await client.replies()
    assert (reply.status, reply.headers["connection"]) == (status, "close")
    assert "/smuggled" not in echo.seen


ACCEPTED = {case.name: (case.sent, case.body.decode()) for case in cases("http1") if case.expect == "answered"}


@pytest.mark.parametrize("by_byte", [False, True])
@pytest.mark.parametrize(("data", "body"), ACCEPTED.values(), ids=ACCEPTED.keys())
async def test_accepted_and_the_next_request_too(data: bytes, body: str, by_byte: bool) -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await deliver(served, data + get("/next", "Connection: close"), by_byte)
        first, second = await client.replies()
    assert (first.status, first.decoded["path"], first.decoded["body"]) == (200, "/", body)
    assert second.decoded["path"] == "/next"


TARGETS = {
    "absolute": (b"GET http://other/a?b HTTP/1.1\r\nHost: x\r\n\r\n", "/a", "b"),
    "absolute without a path": (b"GET http://other HTTP/1.1\r\nHost: x\r\n\r\n", "/", ""),
    "absolute with a query only": (b"GET https://other?b HTTP/1.1\r\nHost: x\r\n\r\n", "/", "b"),
    "absolute with a user": (b"GET HTTP://a:b@other:80/a HTTP/1.1\r\nHost: x\r\n\r\n", "/a", ""),
    "encoded": (get("/a%2Fb%00c?d=%20"), "/a/b\0c", "d=%20"),
    "two slashes": (get("//other/a"), "//other/a", ""),
    "dots": (get("/a/../b"), "/a/../b", ""),
}


@pytest.mark.parametrize(("data", "path", "query"), TARGETS.values(), ids=TARGETS.keys())
async def test_targets(data: bytes, path: str, query: str) -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        client.send(data)
        fields = (await client.reply()).decoded
    assert (fields["path"], fields["query"]) == (path, query)


LAST = {case.name: case.sent for case in cases("http1") if case.expect == "last"}


@pytest.mark.parametrize("data", LAST.values(), ids=LAST.keys())
async def test_data_after_the_last_request_is_ignored(data: bytes) -> None:
    echo = Echo()
    async with serving(echo, LIMITS) as served:
        client = await served.connect()
        client.send(data + CANARY)
        [reply] = await client.replies()
    assert (reply.status, reply.headers["connection"]) == (200, "close")
    assert echo.seen == ["/"]


async def test_trailers_change_nothing() -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        trailers = b"Authorization: Bearer stolen\r\nHost: evil\r\nExpect: 200-ok\r\n"
        client.send(post(CHUNKED, "Authorization: Bearer own", body=b"3\r\nabc\r\n0\r\n" + trailers + b"\r\n"))
        client.send(get("/next"))
        assert (await client.reply()).decoded["authorization"] == "Bearer own"
        assert (await client.reply()).decoded["authorization"] == ""


ENDLESS = {
    "header value": (b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ", b"a" * 64, 431),
    "header name": (b"GET / HTTP/1.1\r\nHost: x\r\nX", b"a" * 64, 431),
    "headers": (b"GET / HTTP/1.1\r\nHost: x\r\n", b"X: a\r\n" * 8, 431),
    "target": (b"GET /", b"a" * 64, 431),
    "blank lines": (b"", b"\r\n" * 32, 431),
    "chunk extension": (chunked(b"3;"), b"a" * 64, 400),
    "chunk size": (chunked(b""), b"0" * 64, 400),
    "trailer": (chunked(b"0\r\nX: "), b"a" * 64, 400),
    "trailers": (chunked(b"0\r\n"), b"X: a\r\n" * 8, 400),
}


@pytest.mark.parametrize(("start", "more", "status"), ENDLESS.values(), ids=ENDLESS.keys())
async def test_an_endless_request_is_bounded(start: bytes, more: bytes, status: int) -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        connection = await served.accepted()
        connection.data_received(start)
        for _ in range(LIMITS.max_head // len(more) + 1):
            connection.data_received(more)
        [reply] = await client.replies()
    assert reply.status == status


async def test_a_large_body_in_small_pieces_is_no_endless_head() -> None:
    async with serving(Echo(), Limits(max_head=256)) as served:
        client = await served.connect()
        connection = await served.accepted()
        connection.data_received(post("Content-Length: 5000"))
        for _ in range(500):
            connection.data_received(b"a" * 10)
        assert len((await client.reply()).decoded["body"]) == 5000


@pytest.mark.parametrize("count", [1, 3, 100])
async def test_pipelined_requests_are_answered_in_order(count: int) -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        client.send(b"".join(get(f"/{i}") for i in range(count)))
        assert [(await client.reply()).decoded["path"] for _ in range(count)] == [f"/{i}" for i in range(count)]


async def test_pipelined_bodies_do_not_mix() -> None:
    bodies = [b"a" * i for i in range(30)]
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        for body in bodies:
            client.send(post(f"Content-Length: {len(body)}", body=body))
            client.send(chunked((b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"))
        for body in bodies:
            assert (await client.reply()).decoded["body"] == body.decode()
            assert (await client.reply()).decoded["body"] == body.decode()


@pytest.mark.parametrize(("bad", "status"), [REFUSED["length twice"], REFUSED["chunk size in C's hex"]])
async def test_a_bad_request_among_good_ones_ends_the_connection_in_its_turn(bad: bytes, status: int) -> None:
    echo = Echo()
    async with serving(echo, LIMITS) as served:
        client = await served.connect()
        client.send(b"".join(get(f"/{i}") for i in range(50)) + bad + CANARY)
        replies = await client.replies()
    assert [reply.decoded["path"] for reply in replies[:-1]] == [f"/{i}" for i in range(50)]
    assert replies[-1].status == status
    assert "/smuggled" not in echo.seen


async def test_a_flood_of_pipelined_requests_is_held_back() -> None:
    turn = asyncio.Semaphore(0)

    async def slow(request: Request) -> Response:
        await turn.acquire()
        return Response(200)

    async with serving(slow, LIMITS) as served:
        client = await served.connect()
        connection = await served.accepted()
        client.send(get() * 40_000)
        await until(lambda: len(connection._queue) >= LIMITS.max_pipelined)
        one_read = len(connection._queue)
        assert one_read < 20_000
        for _ in range(20):
            turn.release()
            await client.reply()
            assert len(connection._queue) <= one_read


async def test_head_has_the_head_of_get_and_no_body() -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        client.send(get() + get().replace(b"GET", b"HEAD") + get())
        whole = await client.reply()
        head = await client.reply("HEAD")
        assert abs(int(head.headers["content-length"]) - len(whole.body)) == 1  # HEAD is a letter longer
        assert (await client.reply()).decoded == whole.decoded


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_without_a_body_gets_none(status: int) -> None:
    async def handler(request: Request) -> Response:
        return Response(status, body=b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async with serving(handler) as served:
        client = await served.connect()
        client.send(get() + get("/", "Connection: close"))
        replies = await client.replies()
    assert [reply.status for reply in replies] == [status, status]
    assert "content-length" not in replies[0].headers


async def test_http10_reuses_connections_on_demand_only() -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        client.send(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert (await client.reply()).headers["connection"] == "keep-alive"
        client.send(b"GET /b HTTP/1.0\r\n\r\n")
        [reply] = await client.replies()
        assert (reply.decoded["path"], reply.headers["connection"]) == ("/b", "close")


class Refuser:
    """Answers before it reads."""

    async def __call__(self, request: Request) -> Response:
        return Response(401, body=b"no")


class TestExpectation:
    EXPECTING = post("Expect: 100-Continue", "Content-Length: 5")

    async def test_continue_is_sent_when_the_body_is_read(self) -> None:
        async with serving(Echo(), LIMITS) as served:
            client = await served.connect()
            client.send(get("/first") + self.EXPECTING)
            assert (await client.reply()).decoded["path"] == "/first"
            assert (await client.reply()).status == 100
            client.send(b"hello")
            assert (await client.reply()).decoded["body"] == "hello"

    async def test_no_continue_when_the_body_is_there(self) -> None:
        async with serving(Echo(), LIMITS) as served:
            client = await served.connect()
            client.send(self.EXPECTING + b"hello")
            assert (await client.reply()).decoded["body"] == "hello"

    async def test_no_continue_to_http10(self) -> None:
        async with serving(Echo(), LIMITS) as served:
            client = await served.connect()
            connection = await served.accepted()
            connection.data_received(self.EXPECTING.replace(b"HTTP/1.1", b"HTTP/1.0"))
            await asyncio.sleep(0)  # the handler reads the body
            connection.data_received(b"hello")
            assert (await client.reply()).decoded["body"] == "hello"

    async def test_a_refusal_replaces_it_and_ends_the_connection(self) -> None:
        async with serving(Refuser(), LIMITS) as served:
            client = await served.connect()
            client.send(self.EXPECTING)
            [reply] = await client.replies()
        assert (reply.status, reply.headers["connection"]) == (401, "close")

    async def test_a_body_too_large_is_refused_instead(self) -> None:
        async with serving(Echo(), LIMITS) as served:
            client = await served.connect()
            client.send(post("Expect: 100-continue", "Content-Length: 1001"))
            [reply] = await client.replies()
        assert reply.status == 413


async def test_a_length_over_the_limit_is_refused_unread() -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        client.send(post("Content-Length: 1000000000000"))
        [reply] = await client.replies()
    assert (reply.status, reply.headers["connection"]) == (413, "close")


async def test_chunks_over_the_limit_are_refused() -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        client.send(post(CHUNKED, body=b"400\r\n" + b"a" * 1024))
        [reply] = await client.replies()
    assert (reply.status, reply.headers["connection"]) == (413, "close")


@pytest.mark.parametrize(("size", "status"), [(1000, 200), (1001, 413)])
async def test_the_limit_is_exact(size: int, status: int) -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        client.send(post(f"Content-Length: {size}", body=b"a" * size))
        assert (await client.reply()).status == status
        client.send(chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"a" * size)))
        client2 = await served.connect()
        client2.send(chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"a" * size)))
        assert (await client2.reply()).status == status


async def test_an_answer_before_the_body_reaches_a_client_that_is_still_sending() -> None:
    async with serving(Refuser()) as served:
        client = await served.connect()
        client.send(post("Content-Length: 4000000", body=b"a" * 2_000_000))
        [reply] = await client.replies()
    assert reply.status == 401


async def test_a_handler_that_fails_is_a_500_without_details(reports: Reports) -> None:
    async def broken(request: Request) -> Response:
        raise RuntimeError("secret")

    async with serving(broken) as served:
        client = await served.connect()
        client.send(get() + get())
        for _ in range(2):
            reply = await client.reply()
            assert reply.status == 500
            assert b"secret" not in reply.body
    assert [str(report["exception"]) for report in (reports.pop(), reports.pop())] == ["secret", "secret"]


@pytest.mark.parametrize("value", ["a\r\nset-cookie: b", "a\nb", "a\rb", "\r\n\r\nbody"])
async def test_a_response_cannot_be_split(value: str, reports: Reports) -> None:
    async def handler(request: Request) -> Response:
        return Response(200, [("x-model", value)], b"ok")

    async with serving(handler) as served:
        client = await served.connect()
        client.send(get())
        assert await client.rest() == b""
    assert "line break" in str(reports.pop()["exception"])


@pytest.mark.parametrize("fields", [("Content-Length: 5",), ("Transfer-Encoding: chunked",)])
@pytest.mark.parametrize("by_byte", [False, True])
async def test_an_upgrade_is_ignored_and_the_body_is_read(fields: tuple[str, ...], by_byte: bool) -> None:
    body = b"hello" if fields[0].startswith("Content") else b"5\r\nhello\r\n0\r\n\r\n"
    request = post(
        "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk", *fields, body=body
    )
    async with serving(Echo()) as served:
        client = await served.connect()
        for piece in [bytes([byte]) for byte in request] if by_byte else [request]:
            client.send(piece)
            await asyncio.sleep(0)
        reply = await client.reply()
        assert (reply.status, reply.decoded["body"]) == (200, "hello")
        assert await client.rest() == b""


async def test_an_upgrade_with_a_body_that_is_cut_off_or_too_large() -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: h2c")
    async with serving(Echo(), Limits(max_body=10)) as served:
        client = await served.connect()
        client.send(post(*upgrade, "Content-Length: 11", body=b"x" * 11))
        assert (await client.reply()).status == 413
        client = await served.connect()
        client.send(post(*upgrade, "Transfer-Encoding: chunked", body=b"zz\r\n"))
        assert (await client.reply()).status == 400


@pytest.mark.parametrize("by_byte", [False, True])
async def test_space_after_a_value_is_no_part_of_it(by_byte: bool) -> None:
    """RFC 9110 5.5. `Expect: 100-continue ` was refused, and lengths with a space were no numbers."""
    seen: list[str | None] = []

    async def remember(request: Request) -> Response:
        seen.append(request.headers.get("x-length"))
        return Response(200, [], await request.read())

    data = b"POST / HTTP/1.1\r\nHost: x \r\nX-Length: \t92 \t\r\nExpect: 100-continue \r\nContent-Length: 2\r\n\r\nok"
    async with serving(remember, LIMITS) as served:
        client = await deliver(served, data, by_byte)
        client.send(get("/", "Connection: close"))
        replies = await client.replies()
    assert [reply.status for reply in replies if reply.status >= 200] == [200, 200]
    assert seen[0] == "92"
