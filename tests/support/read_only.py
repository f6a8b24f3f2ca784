"""A process of another user with a file system that nobody may write to, except two folders: as in a container."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

USER = 10001


def confined(command: Sequence[str], writable: Sequence[Path], variables: Mapping[str, str]) -> list[str]:
    """The command line that runs `command` so, in the first of the writable folders. Needs root.

    The mounts are those of a private namespace and end with the process. The environment has `variables` alone.
    """
    assert os.geteuid() == 0, "this test mounts a read-only root: run it as root, for instance with sudo"
    for folder in writable:
        folder.mkdir()
        os.chown(folder, USER, USER)
    script = "\n".join(["set -eu", "mount --make-rprivate /", *_reachable(writable[0].parent), *_mounts(writable)])
    script += f"\ncd {shlex.quote(str(writable[0]))}\nexec {shlex.join([*_identity(variables), *command])}"
    return ["unshare", "--mount", "sh", "-c", script]


def beside(pid: int, command: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The command line that runs `command` as the confined process `pid` runs, as `kubectl exec` does."""
    return ["nsenter", "--target", str(pid), "--mount", "--wd", *_identity(variables), *command]


def _identity(variables: Mapping[str, str]) -> list[str]:
    user = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--no-new-privs"]
    return [*user, "--bounding-set=-all", "env", "-i", *(f"{name}={value}" for name, value in variables.items())]


def _mounts(writable: Sequence[Path]) -> Iterator[str]:
    yield from (f"mount --bind {shlex.quote(str(folder))} {shlex.quote(str(folder))}" for folder in writable)
    yield "mount -o remount,ro,bind /"
    yield "! touch /written 2> /dev/null"


def _reachable(spare: Path) -> Iterator[str]:
    """Lets another user reach an interpreter below a private home folder, and nothing else of it."""
    base = Path(sys.base_prefix)
    private = [folder for folder in (*reversed(base.parents), base) if not folder.stat().st_mode & 0o001]
    if private:
        inside, outside = shlex.quote(str(base)), shlex.quote(str(spare / "python"))
        yield f"mkdir -p {outside}"
        yield f"mount --bind {inside} {outside}"
        yield f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(private[0]))}"
        yield f"mkdir -p {inside}"
        yield f"mount --bind {outside} {inside}"
        yield f"mount -o remount,ro {shlex.quote(str(private[0]))}"
