"""Temporary folders. The next start removes the folders of a process that was killed."""

import fcntl
import logging
import os
import shutil
import stat
import tempfile
from contextlib import suppress
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
