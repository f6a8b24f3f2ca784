"""The process itself: its temporary folders, its open files, the variables that its children inherit, and its heap."""

import asyncio
import ctypes
import fcntl
import gc
import logging
import os
import re
import resource
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

log = logging.getLogger(__name__)
PREFIX = "headrace-"
OWNER = ".owner"


class TemporaryFolder(tempfile.TemporaryDirectory[str]):
    """A folder that only this user may enter, removed by `cleanup` or at the end of the process.

    A lock on a file inside marks the folder as in use. The kernel releases the lock at every end of the process.
    `sweep` therefore needs no process id, which another process could have received since.
    """

    def __init__(self) -> None:
        super().__init__(prefix=PREFIX, ignore_cleanup_errors=True)
        self._owner = (Path(self.name) / OWNER).open("w")
        fcntl.flock(self._owner, fcntl.LOCK_EX)

    def cleanup(self) -> None:
        self._owner.close()
        super().cleanup()


def sweep() -> int:
    """Remove this user's folders of ended processes. Returns their number. Blocks on disk I/O."""
    removed = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # in use, of another user, or removed by another process
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                with (folder / OWNER).open("r+") as owner:
                    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
                    removed += 1
    if removed:
        log.info("removed %d temporary folders of processes that were killed", removed)
    return removed


# The limit of open files, including sockets, and the number of clients within this limit.

MAX_CONNECTIONS = 4096
"""Maximum number of a runtime's clients, if the limit of open files permits it."""
BESIDE = 128
"""Files other than client connections: listeners, the clients of the admin listener, the key database, logs, pipes."""


def raise_limit() -> int:
    """Raise the soft limit of this process and its children to the hard limit. Returns the effective limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)
    return soft


def clients_that_fit(required: int, files_each: int) -> int:
    """Return the number of client connections that one listener may have, at most `required`. Logs a reduction."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or BESIDE + required * files_each <= limit:
        return required
    fit = max(1, (limit - BESIDE) // files_each)
    log.warning(
        "each listener serves at most %d clients at once instead of %d, as this process may open only %d files: raise "
        "the limit (`ulimit -n`)",
        fit, required, limit,
    )  # fmt: skip
    return fit


# The environment variables that a started program inherits: settings of the machine, and no credentials.
#
# The environment of a server contains the keys of upstreams and databases. Programs that run the code of models or of
# other servers inherit only the variables that are listed here, and no variable that looks like a credential.

INHERITED = frozenset({
    "AIP_HEALTH_ROUTE", "AIP_PREDICT_ROUTE",
    "CC", "CFLAGS", "CONDA_PREFIX", "CURL_CA_BUNDLE", "CXX", "CXXFLAGS", "HEADRACE_CACHE", "HEADRACE_EMULATED_TILES",
    "HOME", "HOSTNAME", "JAVA_HOME", "LANG", "LANGUAGE", "LDFLAGS", "LOGNAME", "NUMEXPR_MAX_THREADS", "PATH",
    "REQUESTS_CA_BUNDLE", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TEMP", "TERM", "TMP", "TMPDIR",
    "TOKENIZERS_PARALLELISM", "TZ", "USER", "VIRTUAL_ENV",
    "ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "all_proxy", "http_proxy", "https_proxy", "no_proxy",
})  # fmt: skip
INHERITED_PREFIXES = (
    "ASCEND_", "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "GLOO_", "GOMP_", "HF_", "HIP_", "HSA_", "KMP_", "LC_", "LD_",
    "MALLOC_", "MKL_", "NCCL_", "NUMBA_", "NVIDIA_", "OMP_", "ONEDNN_", "OPENBLAS_", "OPENVINO_", "ORT_", "PIP_",
    "PYTHON", "PYTORCH_", "ROCM_", "ROCR_", "TBB_", "TF_", "TORCH", "TRANSFORMERS_", "TRITON_", "VECLIB_", "VLLM_",
    "XDG_", "XLA_",
)  # fmt: skip
_SECRET = re.compile(
    r"(?:^|_)(?:KEYS?|APIKEY|TOKENS?|SECRETS?|PASS|PASSWD|PASSWORD|PASSPHRASE|CREDENTIALS?|AUTH|COOKIE|DSN|PAT)(?:_|$)",
    re.IGNORECASE,
)
_WITH_USER = re.compile(r"//[^/\s]*@")
"""A URL with a user name or a password, as for proxies and package indexes."""


def inherited(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that every child process may inherit."""
    return {name: value for name, value in variables.items() if _is_listed(name) and not _WITH_USER.search(value)}


def drop_unlisted(variables: MutableMapping[str, str], passed: Sequence[str]) -> None:
    """Delete the variables that are neither listed nor match one of the patterns `passed`."""
    allowed = inherited(variables)
    for name in [name for name in variables if name not in allowed]:
        if not any(fnmatchcase(name, pattern) for pattern in passed):
            del variables[name]


def _is_listed(name: str) -> bool:
    return name in INHERITED or (name.startswith(INHERITED_PREFIXES) and not _SECRET.search(name))


# The heap of a server: what the garbage collector examines, and memory that glibc retains after `free`.
#
# Bodies and pieces of streams of all sizes leave free memory in the middle of glibc's heap. glibc returns only the free
# memory at the end of the heap, so that a process never shrinks. `malloc_trim` returns the rest.

HEAP_INTERVAL = 5.0
"""Seconds between two checks."""
WORTH_BYTES = 32 * 1024 * 1024
"""Bytes that must have become free since the last check; a smaller amount is soon reused."""

YOUNG_OBJECTS = 5000
"""New objects after which the cycles among them are collected: two milliseconds. Ended requests are counted and logged
in batches, which have more objects than Python's own 700: each batch was examined several times, and had no cycle."""


def freeze_heap() -> None:
    """Exclude all objects of a process that has started from collections: its modules and parts stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


class _Info(ctypes.Structure):
    """`struct mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


class Heap:
    """The heap of glibc. With another C library, `is_supported` is False and nothing is trimmed."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        try:
            self._info, self._trim = libc.mallinfo2, libc.malloc_trim
        except AttributeError:
            self.is_supported = False
            return
        self.is_supported = True
        self._info.restype = _Info
        self._trim.argtypes = [ctypes.c_size_t]
        self._trimmed = self.free_bytes  # trimmed pages still count as free

    @property
    def free_bytes(self) -> int:
        """Free bytes of the heap, including the bytes that were returned to the system."""
        return int(self._info().fordblks)

    def trim(self) -> bool:
        """Return free memory to the system if at least `WORTH_BYTES` became free. Call this method in a thread."""
        free = self.free_bytes
        self._trimmed = min(self._trimmed, free)
        if free < self._trimmed + WORTH_BYTES:
            return False
        self._trim(0)
        self._trimmed = self.free_bytes
        return True


def keep_trimmed(interval: float = HEAP_INTERVAL) -> Callable[[], None]:
    """Return free memory to the system every `interval` seconds. Returns what ends it."""
    loop, heap = asyncio.get_running_loop(), Heap()
    timer: asyncio.TimerHandle

    def trim() -> None:
        nonlocal timer
        timer = loop.call_later(interval, trim)
        loop.run_in_executor(None, heap.trim)

    timer = loop.call_later(interval, trim)
    if not heap.is_supported:
        timer.cancel()
    return lambda: timer.cancel()
