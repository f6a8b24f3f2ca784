"""An upstream that is stopped (SIGSTOP) under load: its kernel accepts connections and nothing ever answers.

No request waits for it longer than its route allows: all of them end while the upstream is still stopped.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.exchanges import Clients, ending
from tests.support.mortals import mortals
from tests.support.processes import GatewayProcess, gateway
from tests.support.tensor_runtime import TensorRuntime, tensor_runtime

pytestmark = pytest.mark.timeout(1800)
RATE = 60
SECONDS = 3.0
CALLERS = 8
TIMEOUT = {"first_byte": "2s", "idle": "2s"}
ADD_SUB = """\
backend: python
inputs: [{name: X, datatype: INT32, dims: [4]}]
outputs: [{name: Y, datatype: INT32, dims: [4]}]
"""
PROGRAM = """\
class Model:
    def infer(self, inputs):
        return {"Y": inputs["X"] + 1}
"""


def configuration(pool: dict[str, Any]) -> dict[str, Any]:
    # The health checks are slow, so that only the route's own limits can end a wait.
    return {
        "pools": [{"name": "up", "probe": {"interval": "60s"}, **pool}],
        "models": [{"name": "chat", "routes": [{"to": "up", "retry": {"attempts": 3}, "timeout": TIMEOUT}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_chats_move_on_from_a_stopped_upstream(stream: bool, tmp_path: Path) -> None:
    async with mortals(2) as servers:
        pool = {"endpoints": [server.url for server in servers], "resume": "text"}
        async with gateway(tmp_path, configuration(pool)) as g:
            clients = Clients(g, await g.key())

            async def stop() -> None:
                await asyncio.sleep(SECONDS / 3)
                servers[0].process.send_signal(signal.SIGSTOP)

            try:
                await asyncio.gather(stop(), clients.run(RATE, SECONDS, stream=stream))
                await g.until_idle()
            finally:
                servers[0].process.send_signal(signal.SIGCONT)
    assert Counter(exchange.status for exchange in clients.exchanges) == {200: int(RATE * SECONDS)}
    if stream:
        # A stream that stops behind its last word cannot be carried on, and ends with an error event.
        assert Counter(map(ending, clients.exchanges))["whole"] > 0.95 * len(clients.exchanges)


@pytest.fixture(scope="module")
def runtimes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[TensorRuntime]]:
    """Two tensor runtimes that serve the same model."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "chat/1").mkdir(parents=True)
    (folder / "chat/1/model.py").write_text(PROGRAM)
    (folder / "chat/model.yaml").write_text(ADD_SUB)
    with ExitStack() as ends:
        yield [ends.enter_context(tensor_runtime("--repository", str(folder))) for _ in range(2)]


@pytest.mark.parametrize("protocol", ["oip-http", "oip-grpc"])
async def test_inferences_move_on_from_a_stopped_upstream(
    protocol: str, runtimes: list[TensorRuntime], tmp_path: Path
) -> None:
    urls = [f"http://{r.http}" if protocol == "oip-http" else f"http://{r.grpc}" for r in runtimes]
    async with gateway(tmp_path, configuration({"protocol": protocol, "endpoints": urls})) as g:
        key = await g.key()
        stopped = asyncio.Event()

        async def stop() -> None:
            await asyncio.sleep(SECONDS / 3)
            runtimes[0].process.send_signal(signal.SIGSTOP)
            stopped.set()

        try:
            done = await asyncio.gather(stop(), *(infer(g, key, stopped) for _ in range(CALLERS)))
            await g.until_idle()
        finally:
            runtimes[0].process.send_signal(signal.SIGCONT)
    statuses = sum((counts for counts in done if counts is not None), Counter[int]())
    assert set(statuses) == {200}
    assert statuses.total() > 10 * CALLERS


async def infer(g: GatewayProcess, key: str, stopped: asyncio.Event) -> Counter[int]:
    """Call the model again and again until ten calls have begun after the stop; the statuses."""
    tensor = {"name": "X", "datatype": "INT32", "shape": [4], "data": [1, 2, 3, 4]}
    headers = {"authorization": f"Bearer {key}"}
    statuses: Counter[int] = Counter()
    after = 0
    async with aiohttp.ClientSession() as http:
        while after < 10:
            after += stopped.is_set()
            async with http.post(
                f"{g.url}/v2/models/chat/infer", json={"inputs": [tensor]}, headers=headers
            ) as response:
                statuses[response.status] += 1
                body = await response.json()
            assert response.status != 200 or body["outputs"][0]["data"] == [2, 3, 4, 5]
    return statuses
