"""A provider that answers anything: each line of a batch has one result, and nothing is asked without end."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.errors import BackendError, TransportError
from adapters.http1.client import Client
from adapters.upstreams.deferral import DeferredRequest, LinePass, ProvidedResponse, ProvidedResult
from adapters.upstreams.provided import exchanges
from adapters.upstreams.provided.anthropic import AnthropicBatches
from adapters.upstreams.provided.openai import MARK, OpenAIBatches
from adapters.upstreams.provided.provider import Unsure
from adapters.wire import decoding
from adapters.wire.failure_text import Scrubber
from gateway.features.batches.calls import LineCharge, LineEnd
from gateway.features.batches.local_storage import LocalStorage
from gateway.features.batches.providers import PoolProvider
from gateway.features.batches.results import LineResult, read_log
from gateway.features.batches.rows import file_object, log_object, order_object
from gateway.features.batches.shard import MOST_ROUNDS, ShardRun
from gateway.features.batches.submissions import LONGEST_DOWNLOAD_PAUSE, MOST_REFUSALS, PATIENCE
from gateway.features.batches.tasks import Claim
from policies.batches.order import examine_lines
from policies.batches.states import ShardCounts
from tests.support.bad_answers import DIGITS, bad_json
from tests.support.batch_specs import direct_context, spec

LINES = 6
BEGAN = 1_000.0
_encode = msgspec.json.encode
BODY = {"id": "a", "choices": [{"index": 0}]}
GOOD: dict[str, Any] = {
    "openai": {"custom_id": "?", "response": {"status_code": 200, "body": BODY}, "error": None},
    "anthropic": {"custom_id": "?", "result": {"type": "succeeded", "message": BODY}},
}
Make = Callable[[str], list[bytes]]
"""The lines of the results for the `custom_id` of a request."""


class FarProvider:
    """The HTTP client of a provider's pool. Batches end at once, with the lines that `make` returns."""

    base_path = "/v1"

    def __init__(self, api: str, make: Make, junk: Sequence[bytes] = (), end: bytes = b"\n") -> None:
        client, scrubber = cast(Client, self), Scrubber()
        openai = api == "openai"
        self.batches = OpenAIBatches(client, scrubber) if openai else AnthropicBatches(client, "1", [], scrubber)
        self.calls = Counter[str]()
        self.times: list[float] = []
        self.failures: list[Exception | int] = []
        """What happens to the next downloads instead; the last one stays."""
        self._api, self._make, self._junk, self._end = api, make, junk, end
        self._requests: list[str] = []

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def request(
        self, method: bytes, target: bytes, fields: bytes, body: bytes, deadline: object, *, once: bool = False
    ) -> ProvidedResponse:
        path, status = target.decode(), 200
        action = path.rpartition("/")[2] if path.endswith(("content", "results")) else f"{method.decode()} {path}"
        self.calls[action.partition("?")[0]] += 1
        if action in ("content", "results"):
            self.times.append(self.now())
            status, answer = self._results()
        elif method == b"POST" and not path.endswith("cancel"):
            answer = self._accept(path, body)
        else:
            answer = self.shown()
        return ProvidedResponse(ProvidedResult(status, answer))

    def _results(self) -> tuple[int, bytes]:
        if self.failures:
            failure = self.failures.pop(0) if len(self.failures) > 1 else self.failures[0]
            if isinstance(failure, Exception):
                raise failure
            return failure, b"{}"
        return 200, self._end.join([*self._junk, *(line for each in self._requests for line in self._make(each))])

    def _accept(self, path: str, body: bytes) -> bytes:
        if path.endswith("/files"):
            lines = [line for line in body.splitlines() if line.startswith(b'{"custom_id"')]
            self._requests = [msgspec.json.decode(line)["custom_id"] for line in lines]
        elif self._api == "anthropic":
            self._requests = [each["custom_id"] for each in msgspec.json.decode(body)["requests"]]
        return self.shown()

    def shown(self) -> bytes:
        counts = {"succeeded": len(self._requests)}
        return _encode({
            "id": "b1", "status": "completed", "created_at": 1.0 if self._api == "openai" else "2026-01-01T00:00:00Z",
            "output_file_id": "f1", "processing_status": "ended", "request_counts": counts,
        })  # fmt: skip


class Calls:
    """The second half of a pass: an answer of 200 must be an object with choices."""

    async def call(self, principal: Any, url: str, body: bytes, passing: LinePass, seed: str) -> LineEnd:
        result = passing.answer(DeferredRequest.of("up", url, body))
        try:
            good = result.status == 200 and bool(msgspec.json.decode(result.body)["choices"])
        except Exception:  # as a codec's failure
            good = False
        error = None if good else decoding.malformed() if result.status == 200 else BackendError("failed")
        text = Raw(result.body if good else b'{"error":{}}')
        return LineEnd(200 if good else 502, text, "r", error, LineCharge())


async def results_of(far: FarProvider, folder: Path, api: Any = "openai", seconds: float = 86400.0) -> list[LineResult]:
    """Run a shard of `LINES` lines, and return its log."""
    storage, began = LocalStorage(str(folder)), asyncio.get_running_loop().time()
    batch = msgspec.structs.replace(spec(1, "acme", api), expires_at=BEGAN + seconds)
    line = {"method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": []}}
    data = b"".join(_encode({"custom_id": f"c{n}", **line}) + b"\n" for n in range(1, LINES + 1))
    order = examine_lines(data, "/v1/chat/completions", 1, 0).entries
    for name, content in ((file_object(batch.input_file), data), (order_object(batch.id), order)):
        with storage.create(name) as writer:
            writer.write(content)
            writer.commit()
    settings: Any = SimpleNamespace(provider_batches=SimpleNamespace(max_size=10**9, poll=30.0))
    pools = frozenset({"up"})
    providers = SimpleNamespace(pools=pools, of=lambda _: PoolProvider(settings, far.batches), unused=Counter())
    context = direct_context(
        storage=storage, store=SimpleNamespace(read=lambda _: frozenset()), calls=Calls(),
        leases=SimpleNamespace(save=lambda *_, done=False: None), gate=SimpleNamespace(own_pools=lambda _: pools),
        providers=providers, wall=lambda: BEGAN + asyncio.get_running_loop().time() - began,
        config=SimpleNamespace(commit=1.0, concurrency=8), max_line=10**6, counts_usage=bool,
    )  # fmt: skip
    run = ShardRun(Claim(batch, 0, 1, ShardCounts()), context)
    await run.run()
    far.calls.update({f"unused {reason}": count for (_, reason), count in providers.unused.items()})
    return sorted(read_log(storage.log(log_object(batch.id, 0, 1))).results, key=lambda result: result.number)


def good_line(api: str, custom_id: str) -> dict[str, Any]:
    return {**GOOD[api], "custom_id": custom_id}


def number_of(custom_id: str) -> int:
    return int(custom_id.split("-")[1])


@pytest.mark.parametrize("api", GOOD)
@given(data=st.data())
async def test_bad_lines_of_results_end_their_own_lines_only(
    api: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bad = data.draw(st.sets(st.integers(1, LINES), min_size=1, max_size=3))
    texts = {number: data.draw(bad_json(good_line(api, "?"))) for number in bad}
    junk = data.draw(st.lists(bad_json(good_line(api, "hr0-1-x")), max_size=2))

    def make(custom_id: str) -> list[bytes]:
        whole = _encode(good_line(api, custom_id))
        text = texts.get(number_of(custom_id))
        return [whole if text is None else text.replace(b'"?"', _encode(custom_id)).replace(b"\n", b"")]

    far = FarProvider(api, make, junk, data.draw(st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\n\r\n \n"])))
    results = await results_of(far, tmp_path_factory.mktemp("files"), api)
    assert [result.number for result in results] == list(range(1, LINES + 1))
    assert all(result.succeeded for result in results if result.number not in bad)
    assert len(far.times) <= MOST_ROUNDS
    assert all(b"error" in result.output for result in results if not result.succeeded)


@pytest.mark.parametrize(("body", "status"), [(b"5", 200), (b'"\xff"', 200), (b"{}", 500)])
async def test_only_a_failure_that_may_pass_is_submitted_again(body: bytes, status: int, tmp_path: Path) -> None:
    """The provider charges for an answer that cannot be read, too."""
    line = {"custom_id": "?", "response": {"status_code": status, "body": Raw(body)}}
    far = FarProvider("openai", lambda each: [_encode({**line, "custom_id": each})])
    results = await results_of(far, tmp_path)
    assert [result.succeeded for result in results] == [False] * LINES
    assert far.calls["POST /v1/batches"] == (1 if status == 200 else MOST_ROUNDS)


FOREIGN = [
    "hr{}-\N{SUPERSCRIPT TWO}-x",
    f"hr{{}}-{DIGITS.decode()}-x",
    "hr0000000000000000-1-x",
    "--",
    "x\0y",
    "hr{}-1",
]


@pytest.mark.parametrize("api", GOOD)
async def test_foreign_results_are_counted_and_ignored(api: str, tmp_path: Path) -> None:
    def make(custom_id: str) -> list[bytes]:
        foreign = [_encode(good_line(api, each.format(custom_id[2:18]))) for each in FOREIGN]
        whole = _encode(good_line(api, custom_id))
        return [*foreign, whole, whole]

    far = FarProvider(api, make, junk=[b"{this is not JSON"], end=b"\r\n")
    results = await results_of(far, tmp_path, api)
    assert [result.succeeded for result in results] == [True] * LINES
    assert len(far.times) == 1
    unreadable = far.calls["unused unreadable"]
    assert unreadable + far.calls["unused foreign"] == 1 + LINES * len(FOREIGN)


@pytest.mark.parametrize("api", GOOD)
async def test_a_line_that_is_too_long_ends_its_own_line(
    api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "LONGEST_LINE", 1000)

    def make(custom_id: str) -> list[bytes]:
        line = good_line(api, custom_id) | ({"more": "x" * 1000} if number_of(custom_id) == 3 else {})
        return [_encode(line)]

    far = FarProvider(api, make)
    results = {result.number: result for result in await results_of(far, tmp_path, api)}
    assert [number for number, result in results.items() if not result.succeeded] == [3]
    assert b"cannot be read" in results[3].output
    assert len(far.times) == 1


async def test_lines_without_a_result_are_submitted_a_few_times_and_then_errors(tmp_path: Path) -> None:
    far = FarProvider("openai", lambda each: [] if number_of(each) == 3 else [_encode(good_line("openai", each))])
    results = {result.number: result for result in await results_of(far, tmp_path)}
    assert len(results) == LINES
    assert b"it returned no result" in results[3].output
    assert far.calls["POST /v1/batches"] == MOST_ROUNDS


async def test_a_file_that_cannot_be_read_is_not_downloaded_without_end(tmp_path: Path) -> None:
    """A refusal ends the lines after some tries; an outage lasts as long as the batch, with growing pauses."""
    far = FarProvider("openai", lambda each: [_encode(good_line("openai", each))])
    far.failures = [404]
    results = await results_of(far, tmp_path / "refused")
    assert [b"cannot be read" in result.output for result in results] == [True] * LINES
    assert len(far.times) == MOST_REFUSALS
    assert not any(action.startswith("DELETE") for action in far.calls)

    far = FarProvider("openai", lambda each: [_encode(good_line("openai", each))])
    far.failures = [TransportError("The connection broke.")]
    results = await results_of(far, tmp_path / "out", seconds=1800.0)
    assert [b"cannot be read" in result.output for result in results] == [True] * LINES
    assert far.times[-1] - far.times[0] > 1800 + PATIENCE - LONGEST_DOWNLOAD_PAUSE
    assert len(far.times) < 20

    far = FarProvider("openai", lambda each: [_encode(good_line("openai", each))])
    far.failures = [TransportError("The connection broke."), 500, 403]
    far.failures += [TransportError("The connection broke.")] * 9
    task = asyncio.create_task(results_of(far, tmp_path / "back"))
    await asyncio.sleep(600)
    far.failures = []
    assert [result.succeeded for result in await task] == [True] * LINES


@pytest.mark.parametrize("api", GOOD)
async def test_a_provider_that_cannot_cancel_does_not_hold_the_batch(api: str, tmp_path: Path) -> None:
    far = FarProvider(api, lambda each: [])
    running = {"id": "b1", "status": "in_progress", "processing_status": "in_progress", "request_counts": {}}
    far.shown = lambda: _encode({**running, "created_at": 5.0 if api == "openai" else "x"})  # type: ignore[method-assign]
    request = far.request

    async def failing(method: bytes, target: bytes, *given: Any, **more: Any) -> ProvidedResponse:
        answer = await request(method, target, *given, **more)
        if target.endswith(b"/cancel"):
            raise TransportError("The provider cannot be reached.")
        return answer

    far.request = failing  # type: ignore[method-assign]
    assert await results_of(far, tmp_path, api, seconds=600.0) == []
    assert 1 < sum(count for action, count in far.calls.items() if action.endswith("cancel")) < 50


@pytest.mark.parametrize("api", GOOD)
@given(bad=st.lists(bad_json({"id": "b0", "status": "x", "metadata": {"headrace_submission": "y"}, "created_at": 5})))
async def test_a_list_of_batches_has_an_end(api: str, bad: list[bytes]) -> None:
    """Other clients' entries may have any form, and a cursor may lead back to its page."""
    far = FarProvider(api, lambda each: [])
    ours = {**msgspec.json.decode(far.shown()), "id": "b9", "metadata": {MARK: "hr0"}}
    ours["created_at"] = 1e12 if api == "openai" else "2999-01-01T00:00:00Z"
    junk = b",".join([text if text.strip() else b"null" for text in bad if is_json(text)] + [b"7"])
    last = {**ours, "metadata": None}
    far.shown = lambda: b'{"data":[%b,%b],"has_more":true}' % (junk, _encode(last))  # type: ignore[method-assign]
    with pytest.raises(BackendError, match="does not end"):
        await far.batches.submitted("hr0", 0.0, 3, frozenset())
    assert sum(count for action, count in far.calls.items() if action.startswith("GET")) == 2
    if api == "openai":
        last = ours
        assert await far.batches.submitted("hr0", 0.0, 3, frozenset()) == "b9"


def is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except decoding.MALFORMED_JSON:
        return False
    return True


async def test_a_batch_of_another_client_without_a_readable_line_is_not_ours() -> None:
    far = FarProvider("anthropic", lambda each: [], junk=[b"{", DIGITS])
    page = {"data": [{**msgspec.json.decode(far.shown()), "created_at": "when?", "id": "other"}]}
    far.shown = lambda: _encode(page)  # type: ignore[method-assign]
    try:
        assert await far.batches.submitted("hr0", 0.0, 0, frozenset()) is None
    except Unsure:
        pytest.fail("the lines wait for a batch that has ended")
