"""A door of clients with stored responses, files and batches on a clock of its own: no socket, and a real SQLite."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.fake import FakeAdapter, Script
from adapters.http1.message import Headers, Request
from config.schema.batches import BatchesConfig
from config.schema.state import StoredResponsesConfig
from gateway.features.batches.service import BatchService
from gateway.features.stored.keeper import Keeper
from gateway.fronts.listener import Fronts
from gateway.process.client_fronts import client_fronts
from tests.support.chats import completion
from tests.support.gateways import PEPPER, Rig, config

FORM = (
    '--B\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--B\r\n'
    'content-disposition: form-data; name="file"; filename="f.jsonl"\r\n\r\n{}\r\n--B--\r\n'
)
"""An uploaded file for batches."""


class InMemory(Request):
    """A request with its whole body."""

    def __init__(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(method, target.encode(), Headers({k.encode(): v.encode() for k, v in headers.items()}), "p")
        self.body = body

    async def read_encoded(self) -> bytes:
        return self.body

    async def pieces(self) -> AsyncIterator[bytes]:
        yield self.body

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.body)


@dataclass
class StateGateway:
    """Sends requests with the key of the rig."""

    rig: Rig
    fronts: Fronts
    keeper: Keeper
    batches: BatchService
    folder: Path
    now: float = 1_800_000_000.0

    async def send(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        """The status and the JSON of a response. A text is a form, everything else is JSON."""
        status, _, text = await self.whole(method, target, body)
        return status, json.loads(text or b"{}")

    async def whole(self, method: str, target: str, body: Any = None) -> tuple[int, dict[str, str], bytes]:
        """The status, the headers and the body of a response; no body for the content of a file."""
        kind = "multipart/form-data; boundary=B" if isinstance(body, str) else "application/json"
        headers = {"authorization": f"Bearer {self.rig.key.plaintext}", "content-type": kind}
        data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        response = await self.fronts(InMemory(method, target, headers, data))
        if isinstance(response.body, bytes):
            return response.status, dict(response.headers), response.body
        await response.body.aclose()
        return response.status, dict(response.headers), b""

    def stored(self) -> tuple[int, int]:
        """Bytes of the database with its free pages, and of the files."""
        database = sum(path.stat().st_size for path in self.folder.glob("state/state.db"))
        return database, sum(path.stat().st_size for path in self.folder.glob("files/**/*") if path.is_file())


@asynccontextmanager
async def state_gateway(folder: Path, tenants: Sequence[Any], **changes: Any) -> AsyncIterator[StateGateway]:
    """The door of some tenants; the key is of the first one."""
    answers = Script(chunks=(completion("x" * 5000),))
    rig = Rig(config(tenants=list(tenants), **changes), {"main": [FakeAdapter(answers)]})
    url, quota = f"sqlite:///{folder}/state/state.db", rig.core.storage_quota
    keeper = Keeper(url, StoredResponsesConfig(), 1 << 20, lambda: made.now, quota)
    settings = BatchesConfig(storage=f"file:{folder}/files", retention="2h")
    batches = BatchService(settings, url, lambda: PEPPER, lambda: made.now, quota)
    made = StateGateway(
        rig, client_fronts(rig.core, keeper=lambda: keeper, batches=lambda: batches), keeper, batches, folder
    )
    writing = asyncio.create_task(keeper.run())
    try:
        yield made
    finally:
        writing.cancel()
        await keeper.aclose()
        batches.close()
    rig.assert_idle()
