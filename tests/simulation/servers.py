"""Servers that answer, or do not, by their scripted mood, byte by byte on a network in memory."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random
from typing import Any

from tests.simulation.calls import COPY, Call, End
from tests.simulation.fates import FINE, LONG, Fate, Mood, draw
from tests.simulation.virtual import Listener, VirtualLoop, Wire

REASON = {200: "OK"}


class ScriptedServer:
    """One endpoint. It may be killed and come back, under the same address."""

    def __init__(self, loop: VirtualLoop, name: str, port: int, dice: Random) -> None:
        self.loop = loop
        self.name = name
        self.dice = dice
        self.mood: Mood = FINE
        self.healthy = True
        self.frozen = False
        """Half-open: connections are accepted, and nothing is answered."""
        self.copy_dice = Random(port)
        """Copies of requests draw from it, so that they do not change the fates of requests."""
        self.calls: list[Call] = []
        self.copies: list[Call] = []
        self.sins = 0
        """How often it may have been blamed."""
        self.was_away = False
        """Whether it was unreachable at some time, which may count against it any number of times."""
        self.connections: dict[_ServerSide, None] = {}  # in the order in which they came, the same each time
        self.most_connections = 0
        self.most_running = 0
        self.listener: Listener = loop.network.listen(lambda: _ServerSide(self), (f"10.0.0.{port}", 80))
        self.url = f"http://10.0.0.{port}"

    @property
    def running(self) -> int:
        return sum(call.end == "running" for calls in (self.calls, self.copies) for call in calls)

    def kill(self) -> None:
        """The process dies: its answers are cut, and its port is closed."""
        self.listener.reach = "refuses"
        self.was_away = True
        for connection in list(self.connections):
            connection.cut(killed=True, hard=connection.dice.random() < 0.5)

    def vanish(self) -> None:
        """The machine disappears: packets get no reply, not even a refused connection."""
        self.listener.reach = "silent"
        self.frozen = self.was_away = True

    def freeze(self) -> None:
        self.frozen = self.was_away = True

    def sicken(self) -> None:
        """Its health check fails, while it answers as before."""
        self.healthy = False

    def revive(self) -> None:
        self.listener.reach = "up"
        self.healthy = True
        if self.frozen:  # the server never read the bytes that arrived in the meantime
            self.frozen = False
            for connection in list(self.connections):
                connection.cut(killed=True, hard=True)

    @property
    def is_fine(self) -> bool:
        """Nothing can go wrong with it at the moment."""
        return self.mood is FINE and self.healthy and not self.frozen and self.listener.reach == "up"


class _ServerSide(asyncio.Protocol):
    """One connection of a gateway."""

    wire: Wire

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self.dice = server.dice
        self._data = b""
        self._task: asyncio.Task[None] | None = None
        self._call: Call | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Wire)
        self.wire = transport
        server = self._server
        server.connections[self] = None
        # One that the gateway has closed is on its way out.
        open_connections = sum(not connection.wire.peer.is_closing() for connection in server.connections)
        server.most_connections = max(server.most_connections, open_connections)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.pop(self, None)
        self._over("left")
        if self._task is not None:
            self._task.cancel()

    def cut(self, *, killed: bool = False, hard: bool) -> None:
        if self._call is not None and self._call.end == "running":
            self._server.sins += killed and not self._call.is_copy
        self._over("killed" if killed else "broken")
        self.wire.drop(None) if hard else self.wire.close()

    def data_received(self, data: bytes) -> None:
        self._data += data
        if COPY.encode() in data:
            self.dice = self._server.copy_dice
        head, complete, rest = self._data.partition(b"\r\n\r\n")
        if not complete or self._server.frozen:
            return
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(fields[b"content-length"])
        if len(rest) < length:
            return
        self._data = rest[length:]
        if head.startswith(b"GET"):
            self.wire.write(_head(200 if self._server.healthy else 503, "text/plain", length=2) + b"ok")
            return
        body = json.loads(rest[:length])
        self._answer(body, fields[b"x-request-id"].decode())

    def _answer(self, body: dict[str, Any], request_id: str) -> None:
        server = self._server
        is_copy = request_id.endswith(COPY)
        calls = server.copies if is_copy else server.calls
        fate = draw(server.mood, self.dice)
        call = Call(f"{server.name}{'+' if is_copy else '#'}{len(calls)}", request_id, body, fate, server.loop.time())
        calls.append(call)
        server.most_running = max(server.most_running, server.running)
        server.sins += fate.is_sin and not is_copy
        self._call = call
        self._task = server.loop.create_task(self._play(call))

    def _over(self, end: End) -> None:
        call = self._call
        if call is not None and call.end == "running":
            call.end, call.ended = end, self._server.loop.time()

    async def _play(self, call: Call) -> None:
        fate = call.fate
        await asyncio.sleep(fate.latency)
        if fate.kind == "cut_at_once":
            return self.cut(hard=fate.hard)
        if fate.kind == "garbage":
            self.wire.write(self.dice.randbytes(60))
        elif fate.status != 200:
            self._refuse(fate)
        elif fate.kind == "error_in_200":
            self._whole(json.dumps({"error": {"message": "out of memory", "code": 500}}).encode())
        elif fate.kind == "wrong_type":
            self._whole(b"<html>It works!</html>", "text/html")
        elif call.body.get("stream"):
            with suppress(_Cut):
                await self._stream(call)
            return None
        else:
            await self._once(call)
        return self._over("broken" if fate.is_sin else "whole")

    def _refuse(self, fate: Fate) -> None:
        body = json.dumps({"error": {"message": "no", "type": "x", "code": None}}).encode()
        extra = f"retry-after: {fate.retry_after}\r\n" if fate.retry_after else ""
        self.wire.write(_head(fate.status, "application/json", extra, length=len(body)) + body)

    def _whole(self, body: bytes, content_type: str = "application/json") -> None:
        self.wire.write(_head(200, content_type, length=len(body)) + body)

    async def _once(self, call: Call) -> None:
        fate = call.fate
        choice = {"index": 0, "message": {"role": "assistant", "content": call.text}, "finish_reason": "stop"}
        answer: dict[str, Any] = {"id": call.id, "object": "chat.completion", "choices": [choice]}
        if fate.usage:
            answer["usage"] = _usage(call)
        body = json.dumps(answer).encode()
        if fate.kind == "garbage_body":
            body = b"{" + body
        head = _head(200, "application/json", length=len(body))
        if fate.kind in ("head_only", "stalls", "cut_in_body", "ends_early", "error_event"):
            self.wire.write(head + (b"" if fate.kind == "head_only" else body[: len(body) // 2]))
            if fate.kind in ("head_only", "stalls"):
                await asyncio.sleep(LONG)
            return self.cut(hard=fate.hard)
        call.finished = True
        self.wire.write(head + body + (b"HTTP/1.1 200 OK\r\n\r\n" if fate.kind == "twice" else b""))
        return None

    async def _stream(self, call: Call) -> None:
        self.wire.write(_head(200, "text/event-stream", "transfer-encoding: chunked\r\n"))
        if call.fate.kind == "head_only":
            await asyncio.sleep(LONG)
        async for piece in self._events(call):
            # Cut into two pieces anywhere, as networks do.
            at = self.dice.randint(0, len(piece))
            framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (piece[:at], piece[at:]) if part)
            self.wire.write(framed)
        self.wire.write(b"0\r\n\r\n" + (b"more" if call.fate.kind == "twice" else b""))
        self._over("broken" if call.fate.is_sin else "whole")

    async def _events(self, call: Call) -> AsyncIterator[bytes]:
        fate = call.fate
        breaks = min(max(fate.after, call.first), call.total)
        for index in range(call.first, call.total + 1):
            if index == breaks:
                async for last in self._fault(fate):
                    yield last
            if index < call.total:
                await asyncio.sleep(fate.gap if index > call.first else 0.0)
                yield _event(call, {"content": call.word(index)})
        yield _event(call, {}, "stop")
        if fate.usage and (call.body.get("stream_options") or {}).get("include_usage"):
            yield b"data: " + json.dumps({"id": call.id, "choices": [], "usage": _usage(call)}).encode() + b"\n\n"
        call.finished = True
        yield b"data: [DONE]\n\n"

    async def _fault(self, fate: Fate) -> AsyncIterator[bytes]:
        """Do nothing for a stream without a fault."""
        if fate.kind in ("stalls", "head_only"):
            await asyncio.sleep(LONG)
        elif fate.kind == "cut_in_body":
            yield b'data: {"choices": [{"ind'
            self.cut(hard=fate.hard)
            raise _Cut
        elif fate.kind == "ends_early":
            self.wire.write(b"0\r\n\r\n")
            self._over("broken")
            raise _Cut
        elif fate.kind == "error_event":
            yield b'data: {"error": {"message": "out of memory"}}\n\n'
        elif fate.kind == "garbage_body":
            self.wire.write(b"zz\r\n" + self.dice.randbytes(20))


class _Cut(Exception):
    """The answer ends here."""


def _head(status: int, content_type: str, extra: str = "", length: int | None = None) -> bytes:
    size = "" if length is None else f"content-length: {length}\r\n"
    return f"HTTP/1.1 {status} {REASON.get(status, 'X')}\r\ncontent-type: {content_type}\r\n{extra}{size}\r\n".encode()


def _event(call: Call, delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": call.id, "object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _usage(call: Call) -> dict[str, int]:
    prompt, words = len(json.dumps(call.body["messages"])) // 5, call.total - call.first
    return {"prompt_tokens": prompt, "completion_tokens": words, "total_tokens": prompt + words}
