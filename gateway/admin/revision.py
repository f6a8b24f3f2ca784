"""The revision of a configuration: a digest of its text, and the version that its source gives it."""

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

DIGITS = 12
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
MOST_REFS = 4 * 1024 * 1024
"""Bytes of Git's packed references that are read."""


def revision_of(text: str) -> str:
    """The revision of a text: replicas with one revision have the same text in force."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:DIGITS]


def version_at(path: Path) -> str:
    """The version of a file by its source: `configmap:FOLDER` in a volume of a ConfigMap, `git:COMMIT` in a checkout.

    Empty for any other source. It blocks: call it in a thread.
    """
    folder = Path(os.path.abspath(path)).parent
    with suppress(OSError):
        return f"configmap:{os.readlink(folder / '..data').lstrip('.')}"
    for parent in (folder, *folder.parents):
        with suppress(OSError, UnicodeDecodeError):
            if (git := _git_folder(parent)) is not None:
                return f"git:{commit[:DIGITS]}" if (commit := _commit(git)) else ""
    return ""


def _git_folder(folder: Path) -> Path | None:
    """Git's data of a checkout; None if the folder is not the root of a checkout."""
    git = folder / ".git"
    if git.is_dir():
        return git
    if not git.is_file():
        return None
    kind, _, place = git.read_text("utf-8").strip().partition(": ")  # a worktree, such as those of git-sync
    return folder / place if kind == "gitdir" else None


def _commit(git: Path) -> str:
    """The commit that is checked out; empty if it cannot be determined."""
    head = (git / "HEAD").read_text("utf-8").strip()
    if not head.startswith("ref: "):
        return head if _COMMIT.fullmatch(head) else ""
    name = head.removeprefix("ref: ")
    common = git
    with suppress(OSError):
        common = git / (git / "commondir").read_text("utf-8").strip()
    with suppress(OSError):
        commit = (common / name).read_text("utf-8").strip()
        return commit if _COMMIT.fullmatch(commit) else ""
    with (common / "packed-refs").open(encoding="utf-8") as file:
        for line in file.read(MOST_REFS).splitlines():
            commit, _, packed = line.partition(" ")
            if packed == name and _COMMIT.fullmatch(commit):
                return commit
    return ""
