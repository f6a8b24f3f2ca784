"""A gateway's core that records, and the records that it wrote."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from adapters.errors import InferenceError
from adapters.fake import FakeAdapter
from adapters.requests import ModelRequest
from config.schema.config import Config, RecordConfig
from gateway.auth.keys import Principal
from gateway.features.recording.recorder import TrafficRecorder
from gateway.features.recording.segments import RecordKey
from gateway.features.replay.records import RecordedRequest, Records
from gateway.telemetry import Record
from tests.support.gateways import Rig, config

SECRET = "the key of these records"
KEY = RecordKey(SECRET)
POOLS = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("main", "spare")]
PRICE = {"prompt": "1 usd/1M", "completion": "2 usd/1M"}
MODELS: list[dict[str, Any]] = [
    {"name": "chat", "price": PRICE, "routes": [{"to": "main", "fallback": ["spare"]}]},
    {"name": "split", "routes": [{"split": {"sticky": "user", "arms": [
        {"pool": "main", "weight": 90}, {"pool": "spare", "weight": 10}]}}]},
    {"name": "dice", "routes": [{"split": {"arms": [
        {"pool": "main", "weight": 1}, {"pool": "spare", "weight": 1}]}}]},
]  # fmt: skip


def recording(folder: Path, **settings: Any) -> RecordConfig:
    """A `record` section that records everything."""
    return RecordConfig.model_validate({"to": str(folder), "key": SECRET, "share": "100%", **settings})


class RecordingRig(Rig):
    """A rig whose requests are recorded."""

    def __init__(self, configuration: Config, adapters: dict[str, list[FakeAdapter]], seed: int = 0) -> None:
        super().__init__(configuration, adapters, seed)
        assert configuration.record is not None
        self.recorder = TrafficRecorder(configuration.record)
        self.recorder.configure(configuration)
        self.core.watchers = (self.recorder.sample.watch,)
        self.core.telemetry.recorder = self.recorder
        self._sent = 0

    async def send(
        self, request: ModelRequest, principal: Principal | None = None, headers: dict[str, str] | None = None
    ) -> Record:
        """Send a request, and read its answer to the end. Returns its record."""
        self._sent += 1
        principal = principal or self.principal
        record = Record(f"req-{self._sent}", request.operation, "127.0.0.1", self.core.clock())
        record.tenant, record.key = principal.tenant, principal.key_id
        try:
            answer = await self.core.handle(principal, request, headers or {}, record)
        except InferenceError as error:
            self.core.end(record, error)
            return record
        with suppress(InferenceError):
            async for _ in answer:
                pass
        return record


@asynccontextmanager
async def recorder_of(rig: RecordingRig) -> AsyncIterator[None]:
    """Run the recorder, and write everything at the end."""
    task = asyncio.create_task(rig.recorder.run())
    try:
        yield
    finally:
        await rig.recorder.aclose()
        await task


def records(folder: Path, *, contents: bool = False) -> list[RecordedRequest]:
    """All records of a folder."""
    return list(Records(folder, KEY, contents=contents))


def recorded_config(folder: Path, **changes: Any) -> Config:
    """A small valid configuration that records."""
    return config(record=recording(folder), **changes)


def recorder_rig(folder: Path, main: FakeAdapter | None = None, **settings: Any) -> RecordingRig:
    """Models with a fallback, with sticky arms and with random arms."""
    made = config(record=recording(folder, **settings), pools=POOLS, models=MODELS)
    return RecordingRig(made, {"main": [main or FakeAdapter()], "spare": [FakeAdapter()]})
