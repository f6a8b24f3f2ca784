"""A disk of 2 MiB that one process sees: `starting_gateway(..., behind=on_a_small_disk(folder))`."""

import shutil
from pathlib import Path

MOUNT = 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"'


def on_a_small_disk(folder: Path) -> list[str]:
    """The prefix of a command that mounts a disk of 2 MiB on `folder`, visible to the command only."""
    unshare = shutil.which("unshare")
    assert unshare is not None, "util-linux is needed for a small disk"
    return [unshare, "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(folder)]


class Disk:
    """The small disk as its process sees it, from outside."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._folder = Path(f"/proc/{pid}/root{folder}")
        self._ballast = self._folder / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            for size in (65536, 1):  # to the last byte
                while True:
                    try:
                        file.write(b"x" * size)
                    except OSError:
                        break

    def free(self) -> None:
        self._ballast.unlink()

    def lines(self, name: str) -> list[bytes]:
        return (self._folder / name).read_bytes().splitlines()
