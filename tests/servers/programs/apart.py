"""Runs a server in a network of its own, for a server that always listens on every address.

`apart.py OUTER:INNER … -- COMMAND`: a connection to OUTER on loopback outside is forwarded to INNER inside. The sockets
that listen are opened before the network is left, and stay in the one they were opened in.
"""

import asyncio
import os
import signal
import socket
import sys
from functools import partial

INSIDE = "--inside"
NETWORK = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def main() -> None:
    split = sys.argv.index("--")
    ports, command = sys.argv[1:split], sys.argv[split + 1 :]
    if ports[0] == INSIDE:
        sys.exit(asyncio.run(_relay(ports[1:], command)))
    pairs = [f"{_listening(int(outer))}:{inner}" for outer, inner in (pair.split(":") for pair in ports)]
    arguments = [*NETWORK, sys.executable, __file__, INSIDE, *pairs, "--", *command]
    os.execvp(arguments[0], arguments)


def _listening(port: int) -> int:
    """The number of a socket that outlives this program."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen(128)
    made.set_inheritable(True)
    return made.detach()


async def _relay(pairs: list[str], command: list[str]) -> int:
    for pair in pairs:
        number, inner = map(int, pair.split(":"))
        await asyncio.start_server(partial(_connected, inner), sock=socket.socket(fileno=number))
    process = await asyncio.create_subprocess_exec(*command)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, process.send_signal, number)
    return await process.wait()


async def _connected(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        there, back = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.transport.abort()
        return
    await asyncio.wait(
        [asyncio.create_task(_pass(reader, back)), asyncio.create_task(_pass(there, writer))],
        return_when=asyncio.FIRST_COMPLETED,  # the close of one side closes the other
    )
    for side in (writer, back):
        side.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass


if __name__ == "__main__":
    main()
