"""The life of a serving process in the audit log, and the status, the revision and the metrics of its configuration."""

import asyncio
import hashlib
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.loader import ConfigError
from config.schema.config import Config
from config.watcher import Watcher
from gateway.admin.drafts.history import ConfigHistory
from gateway.auth.audit import Act, Actor, Outcome
from gateway.auth.state import this_process
from gateway.auth.store import KeyStore
from gateway.auth.trail import Trail
from gateway.background import Background
from gateway.state.errors import StateError
from gateway.telemetry.process_log import configure_log

DIGITS = 12
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
MOST_REFS = 4 * 1024 * 1024
"""Bytes of Git's packed references that are read."""
log = logging.getLogger(__name__)


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


class Lifecycle:
    """Shared by the gateway of one process and the supervisor of several. Entries before `open` are dropped."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path = path
        self.config = config
        """The configuration in force."""
        self.loaded = ""
        """The time at which the configuration in force was loaded, in UTC."""
        self.revision = revision_of(config.text)
        """The revision of the configuration in force."""
        self.version = ""
        """The version of its source: a commit or a ConfigMap's folder; empty for any other source."""
        self.last_error = ""
        """The failure of the last reload or restart; empty after a success."""
        self.watcher: Watcher | None = None
        self.history: ConfigHistory | None = None
        """The versions that were in force, after `open`."""
        self._trail: Trail | None = None
        self._background: Background | None = None
        self._cause: tuple[str, Actor] | None = None
        self._one_version = asyncio.Lock()

    def open(self, store: KeyStore, background: Background, exits: AsyncExitStack) -> None:
        """Start the audit log, which ends with `exits`, and record the start."""
        self._trail = Trail(store.note)
        exits.push_async_callback(self._trail.aclose)
        exits.callback(background.run(self._trail.run, "audit").cancel)
        self._background = background
        self.history = ConfigHistory(self.config.state.database, store.pepper, str(self.path.absolute()))
        exits.callback(self.history.close)
        self.note("gateway.start")

    def record(self, act: Act) -> None:
        """Append an act to the audit log."""
        if self._trail is not None:
            self._trail.note(act)

    def note(self, action: str, outcome: Outcome = "done", **detail: object) -> None:
        """Append an act of this process to the audit log."""
        detail |= {"pid": os.getpid(), "sha256": self.watcher.sha256 if self.watcher is not None else ""}
        self.record(Act(this_process(), action, str(self.path), outcome, detail))

    def started(self) -> None:
        """Record that the first configuration is in force."""
        self._loaded("start")

    @contextmanager
    def caused_by(self, cause: str, actor: Actor) -> Iterator[None]:
        """Attribute the reloads of the block to an actor."""
        self._cause = cause, actor
        try:
            yield
        finally:
            self._cause = None

    def reloaded(self, config: Config) -> None:
        """Record and log a successful reload."""
        self.config = config
        configure_log(config.log)
        self._loaded("reload")
        self.note("config.reload")
        log.info("configuration reloaded from %s", self.path)

    def reload_failed(self, error: ConfigError | str) -> None:
        """Record and log a failed reload. The previous configuration stays in force."""
        self.last_error = str(error)
        self.note("config.reload", "refused", error=self.last_error)
        reasons = "; ".join(line.strip() for line in self.last_error.splitlines() if line.strip())
        log.error("configuration not reloaded, the previous one stays in force: %s", reasons)

    def _loaded(self, cause: str) -> None:
        self.loaded = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.last_error = ""
        self.revision = revision_of(self.config.text)
        if self._background is not None:
            self._background.once(self._read_version(), "version of the configuration")
            cause, actor = self._cause or (cause, this_process())
            self._background.once(self._add_version(self.config.text, cause, actor), "configuration history")

    async def _read_version(self) -> None:
        self.version = await asyncio.to_thread(version_at, self.path)

    async def _add_version(self, text: str, cause: str, actor: Actor) -> None:
        assert self.history is not None
        async with self._one_version:  # versions are in the order of their loads
            try:
                await asyncio.to_thread(self.history.add, text, time.time(), cause, actor)
            except StateError as error:
                log.warning("this version of the configuration is not in its history: %s", error)

    def describe(self) -> dict[str, str]:
        """The status of the configuration, for operators."""
        return {
            "file": str(self.path),
            "loaded": self.loaded,
            "revision": self.revision,
            "version": self.version,
            "last_error": self.last_error,
        }


class ConfigInfo(Collector):
    """The revision of the configuration in force, and whether a later file was refused."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            "headrace_config_info",
            "1 for the revision of the configuration in force, with the version of its source.",
            labels=("revision", "version"),
        )
        info.add_metric((self._lifecycle.revision, self._lifecycle.version), 1)
        yield info
        refused = GaugeMetricFamily("headrace_config_refused", "1 while the last change of the file is refused.")
        refused.add_metric((), bool(self._lifecycle.last_error))
        yield refused
