"""How long a small request waits at a server: `with Prober(url, pid) as prober`, then `prober.worst()`.

The prober is a process of its own, so that work in the test does not count as the server's. What the server's main
thread and the prober wait for a core is subtracted: other programs on the machine do not count either.
"""

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

PAUSE = 0.002
_REQUEST = b"GET %b HTTP/1.1\r\nhost: probe\r\n\r\n"


class Prober:
    """Requests `url` continuously. `pid` is the server's."""

    def __init__(self, url: str, pid: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.prober", url, str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()

    def begin(self) -> None:
        """Forget the probes until now."""
        self._line()

    def worst(self) -> float:
        """Seconds of the slowest probe since `begin`, or since the last call."""
        return self._line()

    def _line(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def __enter__(self) -> "Prober":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.communicate()


def _waited(pid: str) -> float:
    """The seconds that the main thread of a process has waited for a core."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _probe(address: tuple[str, int], path: bytes, pid: str, mine: str) -> float:
    connection = _connections.get(address) or socket.create_connection(address)
    _connections[address] = connection
    before = _waited(pid) + _waited(mine)
    began = time.perf_counter()
    connection.sendall(_REQUEST % path)
    answer = connection.recv(65536)
    took = time.perf_counter() - began
    if not answer:
        raise ConnectionError("the server has closed the connection")
    return max(0.0, took - (_waited(pid) + _waited(mine) - before))


_connections: dict[tuple[str, int], socket.socket] = {}


def main() -> None:
    """A line on stdin is answered by the worst probe since the line before."""
    import os
    import select

    url = urlsplit(sys.argv[1])
    address, path = (url.hostname or "", url.port or 80), url.path.encode()
    mine, worst = str(os.getpid()), 0.0
    while True:
        worst = max(worst, _probe(address, path, sys.argv[2], mine))
        if select.select([sys.stdin], [], [], PAUSE)[0]:
            if not sys.stdin.readline():
                return
            print(worst, flush=True)
            worst = 0.0


if __name__ == "__main__":
    main()
