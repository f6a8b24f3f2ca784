"""A model server that tests kill, on the standard library so that it restarts at once: `mortal_server.py PORT`.

Its answer depends on the prompt alone, from every instance, and it continues the answer of another instance.
"""

import asyncio
import json
import sys
from typing import Any

WORDS = 20
GAP = 0.02


def words(question: str) -> list[str]:
    """The whole answer."""
    return [f"{question}-{i} " for i in range(WORDS)]


async def _answer(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    messages = body["messages"]
    partial = messages[-1]["content"] if body.get("continue_final_message") else ""
    answer = words(messages[0]["content"])[len(partial.split()) :]
    if body.get("stream"):
        await _stream(answer, body, writer)
        return
    await asyncio.sleep(GAP)
    choice = {"index": 0, "message": {"role": "assistant", "content": "".join(answer)}, "finish_reason": "stop"}
    whole = json.dumps({"id": "1", "object": "chat.completion", "model": body["model"], "choices": [choice]}).encode()
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(whole) + whole
    )


async def _stream(answer: list[str], body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for word in [*answer, None]:
        delta = {} if word is None else {"content": word}
        choice = {"index": 0, "delta": delta, "finish_reason": "stop" if word is None else None}
        chunk = {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": body["model"],
            "choices": [choice],
        }
        _write_event(writer, json.dumps(chunk))
        await writer.drain()
        await asyncio.sleep(GAP)
    _write_event(writer, "[DONE]")
    writer.write(b"0\r\n\r\n")


def _write_event(writer: asyncio.StreamWriter, data: str) -> None:
    event = f"data: {data}\n\n".encode()
    writer.write(b"%x\r\n%b\r\n" % (len(event), event))


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
            body = await reader.readexactly(length)
            if head.startswith(b"get"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            else:
                await _answer(json.loads(body), writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _main(port: int) -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
