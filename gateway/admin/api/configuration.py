"""`/admin/config`: shows the file, checks and replays drafts, applies them, and returns to earlier versions.

The gateway does not decode a draft: a process of its own does, and this process forwards its result.
"""

import asyncio
import gzip
import logging
import time
from functools import cache

import msgspec
from aiohttp import web

from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import body_of, number_of, read_object
from gateway.admin.api.guard import AdminRefused, acted, recorded, visit
from gateway.admin.drafts.file import FileContent, NotEditable, check_editable, content_of, replace_content, revision_of
from gateway.admin.drafts.history import MOST_VERSIONS, ConfigHistory, UnreadableVersion
from gateway.admin.drafts.orders import MOST_TEXT, DraftOrder, DraftResult, DraftTask, RecordedSource
from gateway.admin.drafts.process import DraftProcesses, DraftRefused
from gateway.admin.lifecycle import Lifecycle
from gateway.auth.audit import Actor
from gateway.auth.pepper import derived

log = logging.getLogger(__name__)
DRAFT_BYTES = MOST_TEXT + MOST_TEXT // 4
"""Bytes of a body: the text, and the escapes of JSON."""
DRAFT_SECONDS = 30.0
MOST_SINCE = 7 * 86400
HOUR = 3600


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


@cache
def _packed_schema() -> bytes:
    from config.jsonschema import json_schema  # it parses the sources of all sections

    return gzip.compress(msgspec.json.encode(json_schema()))


class ConfigurationFront:
    """The handlers."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend
        self._lifecycle = backend.lifecycle
        self._processes = DraftProcesses()
        self._apply = ConfigApply(backend.lifecycle)
        self._shown: tuple[str, DraftResult] | None = None

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        history = "/admin/config/history"
        return [
            web.get("/admin/config", self._show),
            web.get("/admin/config/schema", self._schema),
            web.put("/admin/config", self._replace),
            web.post("/admin/config/check", self._check),
            web.post("/admin/config/replay", self._replay),
            web.get(history, self._versions),
            web.get(f"{history}/{{version:[0-9]{{1,9}}}}", self._version),
            web.post(f"{history}/{{version:[0-9]{{1,9}}}}/apply", self._return),
        ]

    async def _schema(self, request: web.Request) -> web.Response:
        """The JSON Schema of the file, which `headrace schema` prints."""
        packed = await asyncio.to_thread(_packed_schema)
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=gzip.decompress(packed), content_type="application/json")
        headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return web.Response(body=packed, content_type="application/json", headers=headers)

    async def _show(self, _: web.Request) -> web.Response:
        file = await self._content()
        if self._shown is None or self._shown[0] != file.revision:
            self._shown = file.revision, await self._run(self._order("show", file))
        config, why = self._backend.config, None
        try:
            await asyncio.to_thread(check_editable, self._lifecycle.path, config)
        except NotEditable as error:
            why = str(error)
        in_force = await asyncio.to_thread(lambda: revision_of(config.text.encode()))
        described = {
            **self._lifecycle.describe(),
            "revision": file.revision,
            "in_force": in_force,
            "editable": why is None,
            "why": why,
            "recorded": config.record is not None,
        }
        body = msgspec.json.encode(described)[:-1] + b"," + self._shown[1].body[1:]  # two JSON objects in one
        return web.Response(body=body, content_type="application/json", headers={"etag": f'"{file.revision}"'})

    async def _check(self, request: web.Request) -> web.Response:
        recorded(request)  # a check changes nothing
        async with body_of(request, DRAFT_BYTES, DRAFT_SECONDS) as body:
            result = await self._run(self._order("check", await self._content(), body))
        return _response(result)

    async def _replay(self, request: web.Request) -> web.Response:
        recorded(request)  # a replay changes nothing
        record, seconds = self._backend.config.record, _seconds(request)
        if record is None:
            raise AdminRefused(409, "no_record", "no traffic is recorded: add `record` to the file")
        source = RecordedSource(record.to, record.key.get_secret_value(), time.time() - seconds)
        async with body_of(request, DRAFT_BYTES, DRAFT_SECONDS) as body:
            result = await self._run(self._order("replay", await self._content(), body, record=source))
        return _response(result)

    async def _replace(self, request: web.Request) -> web.Response:
        revision = _if_match(request)
        acted(request, "config.apply", str(self._lifecycle.path), before=revision)
        async with body_of(request, DRAFT_BYTES, DRAFT_SECONDS) as body:
            await self._allowed(revision)
            result = await self._run(self._order("check", await self._content(), body))
        return await self._put(request, result, revision, "apply")

    async def _return(self, request: web.Request) -> web.Response:
        await read_object(request)
        revision, version = _if_match(request), int(request.match_info["version"])
        acted(request, "config.return", str(self._lifecycle.path), before=revision, version=version)
        await self._allowed(revision)
        text = await self._text(version)
        result = await self._run(self._order("check", await self._content(), text=text))
        return await self._put(request, result, revision, "return")

    async def _put(self, request: web.Request, result: DraftResult, revision: str, cause: str) -> web.Response:
        """Put a checked draft in force."""
        if result.status != 200:
            return _response(result)
        if not result.text:
            return web.Response(body=result.body, status=422, content_type="application/json")
        if result.tests_failed and request.query.get("force") != "true":
            raise AdminRefused(
                422,
                "tests_failed",
                f"{result.tests_failed} tests of the policy fail: correct them, or add `force=true`",
            )
        try:
            after = await self._apply.apply(result.text, revision, cause, visit(request).actor)
        except DraftRefused as error:
            raise _refused(error) from None
        act = visit(request).act
        assert act is not None
        acted(request, act.action, act.target, **act.detail, after=after)
        return web.json_response({"revision": after}, headers={"etag": f'"{after}"'})

    async def _versions(self, request: web.Request) -> web.Response:
        limit, before = min(number_of(request, "limit") or 50, MOST_VERSIONS), number_of(request, "before")
        versions = await asyncio.to_thread(self._history.read, limit, before)
        return web.json_response({"versions": [version._asdict() for version in versions]})

    async def _version(self, request: web.Request) -> web.Response:
        text = await self._text(int(request.match_info["version"]))
        return _response(await self._run(self._order("show", await self._content(), text=text)))

    async def _text(self, version: int) -> str:
        try:
            text = await asyncio.to_thread(self._history.text, version)
        except UnreadableVersion as error:
            raise AdminRefused(409, "unreadable_version", str(error)) from None
        if text is None:
            raise AdminRefused(404, "no_such_version", "the history has no version of this number")
        return text

    @property
    def _history(self) -> ConfigHistory:
        history = self._lifecycle.history
        if history is None:
            raise AdminRefused(503, "starting", "the gateway is starting: retry later")
        return history

    async def _content(self) -> FileContent:
        try:
            return await asyncio.to_thread(content_of, self._lifecycle.path)
        except OSError as error:
            raise AdminRefused(409, "unreadable_file", f"{self._lifecycle.path}: {error.strerror}") from None

    async def _allowed(self, revision: str) -> None:
        try:
            await self._apply.check(revision)
        except DraftRefused as error:
            raise _refused(error) from None

    def _order(
        self,
        task: DraftTask,
        file: FileContent,
        body: bytes = b"",
        text: str | None = None,
        record: RecordedSource | None = None,
    ) -> DraftOrder:
        key = derived(self._backend.store.pepper, "configuration placeholders")
        path, in_force = str(self._lifecycle.path), self._backend.config.text
        return DraftOrder(task, path, key, in_force, file.data, body, text, record)

    async def _run(self, order: DraftOrder) -> DraftResult:
        try:
            return await self._processes.run(order)
        except DraftRefused as error:
            raise _refused(error) from None


def _if_match(request: web.Request) -> str:
    """The revision that the client has read. Raises `AdminRefused`."""
    written = request.headers.get("If-Match", "")
    if not written:
        raise AdminRefused(428, "revision_required", 'send `If-Match: "REVISION"`, the revision that you have read')
    return written.strip().removeprefix("W/").strip('"')


def _seconds(request: web.Request) -> int:
    """The age of the oldest request of a replay. Raises `AdminRefused`."""
    seconds = number_of(request, "seconds") or HOUR
    if seconds > MOST_SINCE:
        raise AdminRefused(400, "invalid_request", f"at most {MOST_SINCE} seconds", param="seconds")
    return seconds


def _refused(error: DraftRefused) -> AdminRefused:
    return AdminRefused(error.status, error.code, str(error))


def _response(result: DraftResult) -> web.Response:
    return web.Response(body=result.body, status=result.status, content_type="application/json")
