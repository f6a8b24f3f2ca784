"""Two gateways with one Postgres and one S3 server: a batch survives the death of a gateway and a silent storage."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.http1.message import Response
from tests.support.batches import COST, answers, batched, chat_line, client, counts, results, submitted, until_ended
from tests.support.postgres import Postgres
from tests.support.processes import gateway
from tests.support.s3 import KEY_ID, SECRET, S3Server, s3_server
from tests.support.upstreams import Upstream, upstream, whole
from tests.support.usage import reported

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]
LINES = 900


@pytest.fixture
def database() -> Iterator[str]:
    server = Postgres()
    server.start()
    yield server.database()
    server.remove()


def settings(up: Upstream, folder: Path, storage: S3Server, database: str) -> dict[str, Any]:
    section = storage.section
    section["s3"] = {**section["s3"], "timeout": "1s"}  # type: ignore[dict-item]
    batches = {**section, "takeover": "2s"}
    return {
        **batched(up, folder),
        "batches": batches,
        "state": {"database": database},
        "auth": {"pepper": "${SHARED_PEPPER}"},
    }


async def test_another_gateway_takes_a_batch_over_while_the_storage_is_silent(tmp_path: Path, database: str) -> None:
    for name in ("storage", "one", "two"):
        (tmp_path / name).mkdir()
    env = {"S3_KEY_ID": KEY_ID, "S3_SECRET": SECRET, "SHARED_PEPPER": "pepper-of-the-tests-" * 2}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        async with s3_server(tmp_path / "storage") as storage, upstream() as up:
            written = [settings(up, tmp_path / name, storage, database) for name in ("one", "two")]

            async def answer(body: dict[str, Any]) -> Response:
                await asyncio.sleep(0.02)
                return whole(body["messages"][0]["content"])

            up.behaviour = answer
            async with gateway(tmp_path / "two", written[1], env=env) as second:
                async with gateway(tmp_path / "one", written[0], env=env) as first:
                    key = await first.key()
                    async with client(first, key) as sdk:
                        batch = await submitted(sdk, [chat_line(f"id-{i}", f"text {i}") for i in range(LINES)])
                        async with asyncio.timeout(300):
                            while len(up.received) < LINES // 3:
                                await asyncio.sleep(0.02)
                    await first.stop(signal.SIGKILL)
                storage.signal(signal.SIGSTOP)
                await second.printed("batches: .* waits")
                storage.signal(signal.SIGCONT)
                async with client(second, key) as sdk:
                    batch = await until_ended(sdk, batch)
                    assert (batch.status, batch.request_counts) == ("completed", counts(LINES, LINES, 0))
                    output = await results(sdk, batch.output_file_id)
                assert answers(output) == {f"id-{i}": f"text {i}" for i in range(LINES)}
                _, body = await reported(second, tenant="acme")
                assert sum(row["requests"] for row in body["usage"]) == LINES
                assert sum(row["picos"] for row in body["usage"]) == LINES * COST
