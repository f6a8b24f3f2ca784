"""Replaces the file, reloads it, and restores it if the reload is refused."""

import asyncio
import logging

from gateway.admin.drafts.file import NotEditable, check_editable, content_of, replace_content, revision_of
from gateway.admin.drafts.process import DraftRefused
from gateway.admin.lifecycle import Lifecycle
from gateway.auth.audit import Actor

log = logging.getLogger(__name__)


class ConfigApply:
    """Applies one text at a time."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._one_at_a_time = asyncio.Lock()

    async def check(self, revision: str) -> None:
        """Whether the file may be replaced, and still has the revision. Raises `DraftRefused`."""
        try:
            await asyncio.to_thread(check_editable, self._lifecycle.path, self._lifecycle.config)
            current = (await asyncio.to_thread(content_of, self._lifecycle.path)).revision
        except NotEditable as error:
            raise DraftRefused(403, "not_editable", str(error)) from None
        except OSError as error:
            raise DraftRefused(409, "unreadable_file", f"{self._lifecycle.path}: {error.strerror}") from None
        if current != revision:
            raise DraftRefused(412, "revision_changed", f"the file has the revision {current} now: load it again")

    async def apply(self, text: str, revision: str, cause: str, actor: Actor) -> str:
        """Put a checked text in force. Returns its revision. Raises `DraftRefused`; the old file is then in place."""
        async with self._one_at_a_time:
            await self.check(revision)
            old = await asyncio.to_thread(content_of, self._lifecycle.path)
            data = text.encode()
            after = await asyncio.to_thread(revision_of, data)
            await self._write(data)
            try:
                await self._reload(after, cause, actor)
            except BaseException:
                await asyncio.shield(self._restore(old.data, after))
                raise
            return after

    async def _reload(self, revision: str, cause: str, actor: Actor) -> None:
        lifecycle = self._lifecycle
        watcher = lifecycle.watcher
        if watcher is None:
            raise DraftRefused(503, "starting", "the gateway is starting: retry later")
        with lifecycle.caused_by(cause, actor):
            await watcher.reload_now()
        if lifecycle.last_error:
            raise DraftRefused(409, "reload_refused", f"the file is restored: {lifecycle.last_error}")
        if watcher.sha256 != revision:
            raise DraftRefused(409, "revision_changed", "another program changed the file at the same time")

    async def _restore(self, data: bytes, replaced: str) -> None:
        """Restore the old content, unless another program has changed the file since."""
        try:
            if (await asyncio.to_thread(content_of, self._lifecycle.path)).revision != replaced:
                return
            await self._write(data)
        except (OSError, DraftRefused) as error:
            log.error("the configuration's file could not be restored: %s", error)
            return
        if self._lifecycle.watcher is not None:
            await self._lifecycle.watcher.reload_now()

    async def _write(self, data: bytes) -> None:
        try:
            await asyncio.to_thread(replace_content, self._lifecycle.path, data)
        except OSError as error:
            raise DraftRefused(409, "write_failed", f"{self._lifecycle.path}: {error.strerror}") from None
