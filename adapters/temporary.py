"""Temporary folders that outlive no process for long: the next start removes what a killed process left."""

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

    A lock on a file inside marks it as in use. The kernel frees the lock when the process ends, however it ends, so
    `sweep` needs no process id, which another process may have been given since.
    """

    def __init__(self) -> None:
        super().__init__(prefix=PREFIX, ignore_cleanup_errors=True)
        self._owner = (Path(self.name) / OWNER).open("w")
        fcntl.flock(self._owner, fcntl.LOCK_EX)

    def cleanup(self) -> None:
        self._owner.close()
        super().cleanup()


def sweep() -> int:
    """Remove this user's folders whose process is gone; how many there were. Blocks for the disk."""
    removed = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # in use, not ours, or removed by another process meanwhile
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                with (folder / OWNER).open("r+") as owner:
                    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
                    removed += 1
    if removed:
        log.info("removed %d temporary folders of processes that were killed", removed)
    return removed
