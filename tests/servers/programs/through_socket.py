"""Runs a command in a network of its own, with a Unix socket as the way out.

`through_socket.py SOCKET PORT -- COMMAND`

Connections to 127.0.0.1:PORT inside are forwarded to the socket, which belongs to the outside.
"""

import asyncio
import os
import sys

INSIDE = "--inside"
NETWORK = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def main() -> None:
    if sys.argv[1] == INSIDE:
        sys.exit(asyncio.run(_run(sys.argv[2], int(sys.argv[3]), sys.argv[5:])))
    arguments = [*NETWORK, sys.executable, __file__, INSIDE, *sys.argv[1:]]
    os.execvp(arguments[0], arguments)


async def _run(path: str, port: int, command: list[str]) -> int:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(path)
        passing = [asyncio.create_task(_pass(reader, back)), asyncio.create_task(_pass(there, writer))]
        await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        for side in (writer, back):
            side.close()

    await asyncio.start_server(connected, "127.0.0.1", port)
    process = await asyncio.create_subprocess_exec(*command)
    return await process.wait()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass


if __name__ == "__main__":
    main()
