"""The actor of a replica: runs the server on its node, restarts it, and ends when no gateway leases it.

Ray sends this class to the nodes by value: it uses the standard library and Ray only.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from typing import Any

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 30.0
STABLE_SECONDS = 60.0
WATCH_SECONDS = 2.0
"""The longest time until `watch` returns."""
MAX_LINES = 500
LINES_AT_ONCE = 200
MAX_LINE = 3500


class Replica:
    """A server on a node. Owners lease it by `watch`; the last one that releases it, or is silent, ends it."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import ray

        self._spec = spec
        self._host = ray.util.get_node_ip_address()
        self._node = ray.get_runtime_context().get_node_id()
        self._python = spec["python"] or sys.executable
        self._port = _free_port(self._host)
        self._changed = threading.Condition()
        self._version = 0
        self._ends = self._restarts = 0
        self._last_end = ""
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: deque[tuple[int, str]] = deque(maxlen=MAX_LINES)
        self._count = 0
        self._leases = {"": time.monotonic() + spec["lease"]}
        threading.Thread(target=self._run, daemon=True).start()

    # ── calls of drivers ──────────────────────────────────────────────────────────────────────────────

    def watch(self, owner: str, seen: int, line: int) -> dict[str, Any]:
        """Renew an owner's lease. Returns the state when it differs from version `seen`, or after `WATCH_SECONDS`, with
        the lines of the server's log after number `line`."""
        with self._changed:
            self._leases[owner] = time.monotonic() + self._spec["lease"]
            self._changed.wait_for(lambda: self._version > seen, WATCH_SECONDS)
            host = f"[{self._host}]" if ":" in self._host else self._host
            new = [each for each in self._lines if each[0] > line][-LINES_AT_ONCE:]
            return {
                "version": self._version,
                "address": f"http://{host}:{self._port}",
                "node": self._node,
                "pid": self._process.pid if self._process is not None else None,
                "restarts": self._restarts,
                "ends": self._ends,
                "last_end": self._last_end,
                "line": self._count,
                "lines": [text for _, text in new],
            }

    def release(self, owner: str) -> None:
        """End an owner's lease."""
        with self._changed:
            self._leases.pop(owner, None)
            self._leases.pop("", None)
            self._changed.notify_all()

    # ── the server ────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        backoff = FIRST_BACKOFF
        while self._is_leased():
            started = time.monotonic()
            reason = self._run_once()
            if not self._is_leased():
                break
            if time.monotonic() - started > STABLE_SECONDS:
                backoff, self._ends = FIRST_BACKOFF, 0
            with self._changed:
                self._ends, self._last_end = self._ends + 1, reason
                self._process = None
                self._change()
                self._changed.wait_for(lambda: not self._leases, backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF)
            self._restarts += 1
        self._stop()
        _end_actor()

    def _run_once(self) -> str:
        """Run the server until its end, or until no owner is left. Returns how it ended."""
        places = {"{host}": self._host, "{port}": str(self._port)}
        command = [places.get(part, part) for part in self._spec["command"]]
        try:
            process = subprocess.Popen(  # noqa: S603 - the gateway's command, without a shell
                [self._python, *command],
                env={**os.environ, **self._spec["env"]},
                stdin=subprocess.PIPE,  # closes with this process: the server then stops
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"could not be started: {error.strerror}"
        with self._changed:
            self._process = process
            self._change()
        reading = threading.Thread(target=self._read, args=(process,), daemon=True)
        reading.start()
        while process.poll() is None and self._is_leased():
            with self._changed:
                self._changed.wait(0.2)
        if process.poll() is None:
            return ""
        reading.join(1.0)
        code = process.returncode
        return f"ended with status {code}" if code >= 0 else f"was killed by signal {-code}"

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        for data in iter(lambda: process.stdout.readline(MAX_LINE), b""):  # type: ignore[union-attr]
            text = data.decode(errors="replace").rstrip()
            print(text, file=sys.stderr, flush=True)  # Ray's own log of the actor
            with self._changed:
                self._count += 1
                self._lines.append((self._count, text))

    def _stop(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(self._spec["stop_seconds"])
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────

    def _change(self) -> None:
        self._version += 1
        self._changed.notify_all()

    def _is_leased(self) -> bool:
        now = time.monotonic()
        with self._changed:
            self._leases = {owner: until for owner, until in self._leases.items() if until > now}
            return bool(self._leases)


def _end_actor() -> None:
    import ray

    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
