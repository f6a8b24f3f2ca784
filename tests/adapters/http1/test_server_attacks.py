"""What request smuggling, header injection and plain abuse look like on the wire, and what they get.

Each refused case is followed by a request that only a server which lost count would answer.
"""

import asyncio

import pytest

from adapters.http1.message import Request, Response
from adapters.http1.server import Limits
from tests.adapters.http1.conftest import Reports
from tests.adapters.http1.raw import Echo, get, post, serving, until

LIMITS = Limits(max_head=4096, max_headers=20, max_body=1000, max_pipelined=4)
CANARY = get("/smuggled")
CHUNKED = "Transfer-Encoding: chunked"
HELLO = b"5\r\nhello\r\n0\r\n\r\n"


def chunked(body: bytes) -> bytes:
    return post(CHUNKED, body=body)


FRAMING = {
    "length twice": (post("Content-Length: 3", "Content-Length: 4", body=b"abc"), 400),
    "length twice, the same": (post("Content-Length: 3", "Content-Length: 3", body=b"abc"), 400),
    "length with a comma": (post("Content-Length: 3, 3", body=b"abc"), 400),
    "length with a plus": (post("Content-Length: +3", body=b"abc"), 400),
    "length below zero": (post("Content-Length: -3", body=b"abc"), 400),
    "length in hex": (post("Content-Length: 0x3", body=b"abc"), 400),
    "length with an underscore": (post("Content-Length: 1_0", body=b"abc"), 400),
    "length in two words": (post("Content-Length: 3 3", body=b"abc"), 400),
    "length with an exponent": (post("Content-Length: 1e2", body=b"abc"), 400),
    "length in other digits": (post("Content-Length: \xb3", body=b"abc"), 400),
    "length past 64 bits": (post("Content-Length: 18446744073709551619", body=b"abc"), 400),
    "length of 30 digits": (post("Content-Length: " + "9" * 30, body=b"abc"), 400),
    "length empty": (post("Content-Length: ", body=b"abc"), 400),
    "length, then chunked": (post("Content-Length: 3", CHUNKED, body=HELLO), 400),
    "chunked, then length": (post(CHUNKED, "Content-Length: 3", body=HELLO), 400),
    "chunked twice": (post(CHUNKED, CHUNKED, body=HELLO), 400),
    "chunked twice in one field": (post("Transfer-Encoding: chunked, chunked", body=HELLO), 400),
    "xchunked": (post("Transfer-Encoding: xchunked", body=HELLO), 501),
    "chunked, identity": (post("Transfer-Encoding: chunked, identity", body=HELLO), 400),
    "gzip, chunked": (post("Transfer-Encoding: gzip, chunked", body=HELLO), 501),
    "gzip and chunked in two fields": (post("Transfer-Encoding: gzip", CHUNKED, body=HELLO), 400),
    "identity": (post("Transfer-Encoding: identity", body=HELLO), 501),
    "coding with a parameter": (post("Transfer-Encoding: chunked;q=1", body=HELLO), 501),
    "coding in quotes": (post('Transfer-Encoding: "chunked"', body=HELLO), 501),
    "coding empty": (post("Transfer-Encoding:", body=HELLO), 400),
    "coding with a comma": (post("Transfer-Encoding: ,chunked", body=HELLO), 501),
    "vertical tab before the coding": (post("Transfer-Encoding: \x0bchunked", body=HELLO), 400),
    "vertical tab after the coding": (post("Transfer-Encoding: chunked\x0b", body=HELLO), 400),
    "NUL after the coding": (post("Transfer-Encoding: chunked\0", body=HELLO), 400),
    "non-breaking space before the coding": (post("Transfer-Encoding: \xa0chunked", body=HELLO), 501),
    "space before the colon": (post("Transfer-Encoding : chunked", body=HELLO), 400),
    "tab before the colon": (post("Transfer-Encoding\t: chunked", body=HELLO), 400),
    "space inside the name": (post("Transfer Encoding: chunked", body=HELLO), 400),
    "coding on a folded line": (post("Transfer-Encoding:\r\n chunked", body=HELLO), 400),
    "coding in HTTP/1.0": (post(CHUNKED, body=HELLO, version="1.0"), 501),
}

HEADS = {
    "folded line": (get("/", "X-A: b\r\n c"), 400),
    "folded line first": (b"GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400),
    "bare LF after a field": (b"GET / HTTP/1.1\r\nHost: x\nX-A: b\r\n\r\n", 400),
    "bare LF after the request line": (b"GET / HTTP/1.1\nHost: x\r\n\r\n", 400),
    "bare LF for the blank line": (b"GET / HTTP/1.1\r\nHost: x\r\n\n", 400),
    "bare LF everywhere": (b"GET / HTTP/1.1\nHost: x\n\n", 400),
    "bare CR in a value": (get("/", "X-A: b\rX-B: c"), 400),
    "bare CR for the blank line": (b"GET / HTTP/1.1\r\nHost: x\r\n\rX", 400),
    "NUL in a value": (get("/", "X-A: b\0c"), 400),
    "NUL in a name": (get("/", "X\0A: b"), 400),
    "NUL in the target": (get("/a\0b"), 400),
    "control character in a value": (get("/", "X-A: b\x1fc"), 400),
    "empty name": (get("/", ": b"), 400),
    "no colon": (get("/", "X-A"), 400),
    "quote in a name": (get("/", 'X"A: b'), 400),
    "bytes above ASCII in the target": (get("/\xff"), 400),
    "tab in the request line": (b"GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "two words for a target": (b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "no target": (b"GET HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "method in lower case": (b"get / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "method nobody knows": (b"SMUGGLE / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a response": (b"HTTP/1.1 200 OK\r\nHost: x\r\n\r\n", 400),
    "TLS on a plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40), 400),
    "authority for a target": (b"GET x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "asterisk for a target": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "absolute target of another scheme": (b"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "absolute target without a host": (b"GET http:///a HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "CONNECT to an authority": (b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "CONNECT to a path": (b"CONNECT /a HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /\r\n\r\n", 505),
    "HTTP/1.2": (b"GET / HTTP/1.2\r\nHost: x\r\n\r\n", 400),
    "HTTP/1.10": (b"GET / HTTP/1.10\r\nHost: x\r\n\r\n", 400),
    "HTTP/2.0 as text": (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "protocol in lower case": (b"GET / http/1.1\r\nHost: x\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\nX-A: b\r\n\r\n", 400),
    "host twice": (get("/", "Host: y"), 400),
    "host twice, the same": (get("/", "Host: x"), 400),
    "host with a space": (b"GET / HTTP/1.1\r\nHost: x y\r\n\r\n", 400),
    "host with a path": (b"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", 400),
    "host with a user": (b"GET / HTTP/1.1\r\nHost: a@x\r\n\r\n", 400),
    "host above ASCII": (b"GET / HTTP/1.1\r\nHost: \xe9\r\n\r\n", 400),
    "authorization twice": (get("/", "Authorization: Bearer a", "Authorization: Bearer b"), 400),
    "content-type twice": (get("/", "Content-Type: a/b", "Content-Type: a/c"), 400),
    "expect twice": (get("/", "Expect: 100-continue", "Expect: 100-continue"), 400),
    "unknown expectation": (post("Expect: 200-ok", "Content-Length: 3", body=b"abc"), 417),
    "one field too many": (get("/", *[f"X-{i}: a" for i in range(20)]), 431),
    "one field too large": (get("/", "X-A: " + "a" * 5000), 431),
    "fields too large together": (get("/", *[f"X-{i}: " + "a" * 500 for i in range(10)]), 431),
    "target too large": (get("/" + "a" * 5000), 431),
    "target too large by its query": (get("/?" + "a" * 5000), 431),
}

CHUNKS = {
    "chunk size in C's hex": (chunked(b"0x3\r\nabc\r\n0\r\n\r\n"), 400),
    "chunk size below zero": (chunked(b"-3\r\nabc\r\n0\r\n\r\n"), 400),
    "chunk size with a plus": (chunked(b"+3\r\nabc\r\n0\r\n\r\n"), 400),
    "chunk size empty": (chunked(b"\r\nabc\r\n0\r\n\r\n"), 400),
    "chunk size past 64 bits": (chunked(b"10000000000000003\r\nabc\r\n0\r\n\r\n"), 400),
    "chunk size of 100 zeros and a G": (chunked(b"0" * 100 + b"G\r\n\r\n"), 400),
    "space before the chunk size": (chunked(b" 3\r\nabc\r\n0\r\n\r\n"), 400),
    "space after the chunk size": (chunked(b"3 \r\nabc\r\n0\r\n\r\n"), 400),
    "tab after the chunk size": (chunked(b"3\t\r\nabc\r\n0\r\n\r\n"), 400),
    "chunk size ends in LF": (chunked(b"3\nabc\r\n0\r\n\r\n"), 400),
    "chunk size ends in CR": (chunked(b"3\rabc\r\n0\r\n\r\n"), 400),
    "chunk data ends in LF": (chunked(b"3\r\nabc\n0\r\n\r\n"), 400),
    "chunk data without an end": (chunked(b"3\r\nabc0\r\n\r\n"), 400),
    "chunk longer than its size": (chunked(b"3\r\nabcdef\r\n0\r\n\r\n"), 400),
    "chunk shorter than its size": (chunked(b"9\r\nabc\r\n0\r\n\r\n"), 400),
    "LF in a chunk extension": (chunked(b"3;a\nb\r\nabc\r\n0\r\n\r\n"), 400),
    "control character in a chunk extension": (chunked(b"3;a\x01\r\nabc\r\n0\r\n\r\n"), 400),
    "last chunk ends in LF": (chunked(b"0\n\n"), 400),
    "trailers end in LF": (chunked(b"0\r\n\nX"), 400),
    "trailer with a length": (chunked(b"0\r\nContent-Length: 5\r\n\r\n"), 400),
    "trailer with a space before the colon": (chunked(b"0\r\nX-A : b\r\n\r\n"), 400),
    "trailer folded": (chunked(b"0\r\nX-A: b\r\n c\r\n\r\n"), 400),
}

REFUSED = {**FRAMING, **HEADS, **CHUNKS}


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED.keys())
async def test_refused_once_and_closed(data: bytes, status: int) -> None:
    echo = Echo()
    async with serving(echo, LIMITS) as served:
        client = await served.connect()
        client.send(data + CANARY)
        [reply] = await client.replies()
    assert (reply.status, reply.headers["connection"]) == (status, "close")
    assert "/smuggled" not in echo.seen


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED.keys())
async def test_refused_the_same_when_it_comes_byte_by_byte(data: bytes, status: int) -> None:
    echo = Echo()
    async with serving(echo, LIMITS) as served:
        client = await served.connect()
        connection = await served.accepted()
        for byte in data + CANARY:
            connection.data_received(bytes([byte]))
        [reply] = await client.replies()
    assert (reply.status, reply.headers["connection"]) == (status, "close")
    assert "/smuggled" not in echo.seen


ACCEPTED = {
    "no body": (get(), ""),
    "a length of zero": (post("Content-Length: 0"), ""),
    "leading zeros": (post("Content-Length: 003", body=b"abc"), "abc"),
    "a length": (post("Content-Length: 3", body=b"abc"), "abc"),
    "a length between spaces": (post("Content-Length:  \t3 \t ", body=b"abc"), "abc"),
    "a name that only looks like one": (post("Transfer_Encoding: chunked", "Content-Length: 3", body=b"abc"), "abc"),
    "chunks": (post(CHUNKED, body=HELLO), "hello"),
    "chunks in other letters": (post("transfer-ENCODING: cHuNkEd", body=HELLO), "hello"),
    "coding after a tab": (post("Transfer-Encoding:\tchunked", body=HELLO), "hello"),
    "coding before a space": (post("Transfer-Encoding: chunked ", body=HELLO), "hello"),
    "no chunks": (chunked(b"0\r\n\r\n"), ""),
    "many chunks": (chunked(b"1\r\na\r\n" * 50 + b"0\r\n\r\n"), "a" * 50),
    "zeros before a chunk size": (chunked(b"000003\r\nabc\r\n0\r\n\r\n"), "abc"),
    "chunk size in upper case": (chunked(b"A\r\n0123456789\r\n0\r\n\r\n"), "0123456789"),
    "chunk extension": (chunked(b'3;a=b;c="d"\r\nabc\r\n0;e\r\n\r\n'), "abc"),
    "a request inside a body": (post(f"Content-Length: {len(CANARY)}", body=CANARY), CANARY.decode()),
    "a request inside a chunk": (chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (len(CANARY), CANARY)), CANARY.decode()),
    "blank lines before a request": (b"\r\n\r\n" + get(), ""),
    "a body with GET": (get("/", "Content-Length: 3") + b"abc", "abc"),
    "an empty host": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", ""),
    "an IPv6 host": (b"GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", ""),
}


@pytest.mark.parametrize(("data", "body"), ACCEPTED.values(), ids=ACCEPTED.keys())
async def test_accepted_and_the_next_request_too(data: bytes, body: str) -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        client.send(data + get("/next", "Connection: close"))
        first, second = await client.replies()
    assert (first.status, first.told["path"], first.told["body"]) == (200, "/", body)
    assert second.told["path"] == "/next"


@pytest.mark.parametrize(("data", "body"), ACCEPTED.values(), ids=ACCEPTED.keys())
async def test_accepted_the_same_when_it_comes_byte_by_byte(data: bytes, body: str) -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        connection = await served.accepted()
        for byte in data:
            connection.data_received(bytes([byte]))
        reply = await client.reply()
    assert (reply.status, reply.told["body"]) == (200, body)


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
        told = (await client.reply()).told
    assert (told["path"], told["query"]) == (path, query)


LAST = {
    "connection: close": get("/", "Connection: close"),
    "close among others": get("/", "Connection: keep-alive, close"),
    "close with a body": post("Connection: close", "Content-Length: 3", body=b"abc"),
    "HTTP/1.0": b"GET / HTTP/1.0\r\n\r\n",
    "websocket": get("/", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    "h2c": get("/", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
    "upgrade with a body": post("Connection: Upgrade", "Upgrade: h2c", "Content-Length: 3", body=b"abc"),
    "upgrade with chunks": post("Connection: Upgrade", "Upgrade: h2c", CHUNKED, body=HELLO),
}


@pytest.mark.parametrize("data", LAST.values(), ids=LAST.keys())
async def test_nothing_is_heard_after_the_last_request(data: bytes) -> None:
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
        assert (await client.reply()).told["authorization"] == "Bearer own"
        assert (await client.reply()).told["authorization"] == ""


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
async def test_what_never_ends_is_bounded(start: bytes, more: bytes, status: int) -> None:
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
        assert len((await client.reply()).told["body"]) == 5000


@pytest.mark.parametrize("count", [1, 3, 100])
async def test_pipelined_requests_are_answered_in_order(count: int) -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        client.send(b"".join(get(f"/{i}") for i in range(count)))
        assert [(await client.reply()).told["path"] for _ in range(count)] == [f"/{i}" for i in range(count)]


async def test_pipelined_bodies_do_not_mix() -> None:
    bodies = [b"a" * i for i in range(30)]
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        for body in bodies:
            client.send(post(f"Content-Length: {len(body)}", body=body))
            client.send(chunked((b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"))
        for body in bodies:
            assert (await client.reply()).told["body"] == body.decode()
            assert (await client.reply()).told["body"] == body.decode()


@pytest.mark.parametrize(("bad", "status"), [REFUSED["length twice"], REFUSED["chunk size in C's hex"]])
async def test_a_bad_request_among_good_ones_ends_the_connection_in_its_turn(bad: bytes, status: int) -> None:
    echo = Echo()
    async with serving(echo, LIMITS) as served:
        client = await served.connect()
        client.send(b"".join(get(f"/{i}") for i in range(50)) + bad + CANARY)
        replies = await client.replies()
    assert [reply.told["path"] for reply in replies[:-1]] == [f"/{i}" for i in range(50)]
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
        assert (await client.reply()).told == whole.told


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


async def test_http10_keeps_alive_only_when_asked() -> None:
    async with serving(Echo(), LIMITS) as served:
        client = await served.connect()
        client.send(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert (await client.reply()).headers["connection"] == "keep-alive"
        client.send(b"GET /b HTTP/1.0\r\n\r\n")
        [reply] = await client.replies()
        assert (reply.told["path"], reply.headers["connection"]) == ("/b", "close")


class Refuser:
    """Answers before it reads."""

    async def __call__(self, request: Request) -> Response:
        return Response(401, body=b"no")


class TestExpectation:
    ASKS = post("Expect: 100-Continue", "Content-Length: 5")

    async def test_continue_goes_out_when_the_body_is_wanted(self) -> None:
        async with serving(Echo(), LIMITS) as served:
            client = await served.connect()
            client.send(get("/first") + self.ASKS)
            assert (await client.reply()).told["path"] == "/first"
            assert (await client.reply()).status == 100
            client.send(b"hello")
            assert (await client.reply()).told["body"] == "hello"

    async def test_no_continue_when_the_body_is_there(self) -> None:
        async with serving(Echo(), LIMITS) as served:
            client = await served.connect()
            client.send(self.ASKS + b"hello")
            assert (await client.reply()).told["body"] == "hello"

    async def test_no_continue_to_http10(self) -> None:
        async with serving(Echo(), LIMITS) as served:
            client = await served.connect()
            connection = await served.accepted()
            connection.data_received(self.ASKS.replace(b"HTTP/1.1", b"HTTP/1.0"))
            await asyncio.sleep(0)  # the handler asks for the body
            connection.data_received(b"hello")
            assert (await client.reply()).told["body"] == "hello"

    async def test_a_refusal_comes_instead_and_ends_the_connection(self) -> None:
        async with serving(Refuser(), LIMITS) as served:
            client = await served.connect()
            client.send(self.ASKS)
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
