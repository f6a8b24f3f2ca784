"""A tensor runtime process of the test's own: `with tensor_runtime(repository) as runtime`."""

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

COMMAND = [sys.executable, "-m", "runtimes.tensor"]
START_SECONDS = 600.0


class TensorRuntime:
    """A running one, on free ports."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.output = ""
        self.http = ""
        """`HOST:PORT`, as its clients require it."""
        self.grpc = ""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.output += line
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def printed(self, pattern: str, seconds: float = START_SECONDS) -> re.Match[str]:
        """Wait until its log holds a match."""
        end = time.monotonic() + seconds
        with self._changed:
            while (match := re.search(pattern, self.output)) is None:
                left = end - time.monotonic()
                if left <= 0 or not self._reader.is_alive():
                    raise AssertionError(f"the runtime did not print {pattern!r}:\n{self.output}")
                self._changed.wait(min(left, 1.0))
        return match

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(60)
        self._reader.join(60)
        return status


@contextlib.contextmanager
def tensor_runtime(*options: str, ready: bool = True) -> Iterator[TensorRuntime]:
    """Started with these options beside its ports; when it is `ready` its models have been loaded."""
    process = subprocess.Popen(
        [*COMMAND, *options, "--http-port", "0", "--grpc-port", "0"],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    runtime = TensorRuntime(process)
    try:
        runtime.http = runtime.printed(r"HTTP on http://(\S+)")[1]
        runtime.grpc = runtime.printed(r"gRPC on (\d\S+)")[1]
        if ready:
            runtime.printed(r"serving \d+ models")
        yield runtime
    except BaseException as error:
        error.add_note(f"the runtime's log:\n{runtime.output[-5000:]}")
        raise
    finally:
        if process.poll() is None:
            runtime.stop()
        runtime.process.wait(60)
        if process.stderr is not None:
            process.stderr.close()


@contextlib.contextmanager
def explicit(repository: Path, *options: str) -> Iterator[TensorRuntime]:
    """All models loaded, and clients may load and unload them."""
    with tensor_runtime("--repository", str(repository), "--mode", "explicit", "--load", "*", *options) as runtime:
        yield runtime
