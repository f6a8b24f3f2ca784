"""A network namespace with loopback only, for servers that listen on every address or on a fixed port."""

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Final

from loadtests.servers import StartError

INSIDE: Final = "HEADRACE_OWN_NETWORK"
"""Set in processes that run in a network of their own."""


def prefix() -> list[str]:
    """The beginning of a command that runs in a new network. Raises `StartError` without `unshare`."""
    if shutil.which("unshare") is None:
        raise StartError("no unshare on PATH (util-linux)")
    begin = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    return [*begin, "env", f"{INSIDE}=1"]


def enter(module: str, arguments: Sequence[str]) -> None:
    """Run this module again in a new network, in place of this process; nothing if it is in one."""
    if INSIDE not in os.environ:
        command = [*prefix(), sys.executable, "-m", module, *arguments]
        os.execvp(command[0], command)
