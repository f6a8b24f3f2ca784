"""A server whose model generates the test's script, through the real engine, scheduler and HTTP."""

import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from adapters.http1.server import Limits, Server
from runtimes.llm.api.http_bodies import refusal
from runtimes.llm.api.server import App
from runtimes.llm.api.submission import LoadedModel
from runtimes.llm.engine.adapters import AdapterPool
from runtimes.llm.engine.async_engine import AsyncEngine, Engine, EngineConfig, StepRunner
from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.model_runner import Pooler
from runtimes.llm.engine.results import accepted
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.speculation import Speculation, Speculator
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.grammar.constraint import Grammars
from runtimes.llm.sequence import Chunk, Sampled, StepBatch
from runtimes.llm.service import ServiceOptions
from runtimes.llm.text.chat_template import ChatTemplate
from runtimes.llm.text.tokenizer import Tokenizer
from runtimes.spans import SpanBuffer
from runtimes.traced_handler import TracedHandler
from tests.support.byte_tokenizer import CHATML, byte_tokenizer
from tests.support.conditions import until

MODEL = "parrot"
TEXT = "Hello, wörld! 😀"
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
PROMPT_TOKENS = len("..user\nhi.\n..assistant\n") - 2  # of HI: a byte a token, the markers one each
ANSWER_TOKENS = len(TEXT.encode()) + 1  # with the end token
CONTEXT = 256
END = frozenset({257})


class Parrot:
    """A runner that generates `script` after any prompt, then an end token; it fails after `fails_after` steps.

    While `gate` is closed no step ends. If it `continues`, it continues a prompt that ends with a part of the script.
    """

    def __init__(self, script: list[int], fails_after: int | None = None) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.continues = False
        self.script = script
        self.steps = 0
        """The time of an engine that proposes: each step takes as long, whatever other threads do meanwhile."""
        self._steps_left = fails_after
        self._began: dict[int, int] = {}

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        assert self.gate.wait(timeout=300)
        self.steps += 1
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left < 0:
                raise RuntimeError("the device is lost")
        sampled: dict[int, Sampled] = {}
        for chunk in batch.chunks:
            if chunk.samples:
                places = [self._place(step) for step in chunk.steps or (chunk,)]
                tokens = [self.script[at] if at < len(self.script) else 257 for at in places]
                sampled[chunk.sequence_id] = accepted(chunk.token_ids[1:], [Sampled(token) for token in tokens])
        return sampled

    def _place(self, chunk: Chunk) -> int:
        began = chunk.end - self._script_length(chunk.token_ids)
        return chunk.end - self._began.setdefault(chunk.sequence_id, began)

    def _script_length(self, prompt: Sequence[int]) -> int:
        """The length of the script's beginning at the end of a prompt."""
        lengths = range(min(len(prompt), len(self.script)), 0, -1) if self.continues else ()
        return next((n for n in lengths if list(prompt[-n:]) == self.script[:n]), 0)


@dataclass(frozen=True, slots=True)
class Running:
    """A server on loopback, its client and its parts."""

    url: str
    client: Any  # an AsyncOpenAI: what is optional in its answers is there in ours
    app: App
    engine: AsyncEngine
    parrot: Parrot


@asynccontextmanager
async def serving(
    text: str = TEXT,
    *,
    fails_after: int | None = None,
    max_queue: int = 64,
    max_num_seqs: int = 32,
    prefix_cache: bool = False,
    max_batched: int = CONTEXT,
    num_blocks: int = 600,
    runner: StepRunner | None = None,
    pooler: Pooler | None = None,
    template: str = CHATML,
    tokenizer: Tokenizer | None = None,
    max_body: int = 1 << 19,
    context: int = CONTEXT,
    whole: Engine | None = None,
    adapters: AdapterPool | None = None,
    proposes: int | None = None,
) -> AsyncIterator[Running]:
    """Yields a Running; afterwards no sequence may live and no page be in use. With a `prefix_cache` the parrot does
    not receive the cached part of a prompt, so it cannot continue the prompt. A `runner` replaces the parrot. A
    `whole` engine has a model of its own, and `adapters` perhaps. An engine that `proposes` speculates as if proposals
    were free."""
    tokenizer = tokenizer or byte_tokenizer()
    vocab, ends = len(tokenizer.pieces), tokenizer.eos_token_ids
    parrot = Parrot(tokenizer.encode(text), fails_after)
    bounds = SchedulerConfig(
        max_model_len=context, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_batched, max_queue=max_queue
    )
    speculator = None if proposes is None else Speculator(Speculation("ngram", proposes), context)
    scheduler = Scheduler(bounds, BlockManager(num_blocks=num_blocks, block_size=16, caching=prefix_cache), speculator)
    made = Engine(scheduler, runner or parrot, vocab_size=vocab, eos_token_ids=ends, pooler=pooler)
    if proposes is not None:
        made.clock = lambda: float(parrot.steps)
    engine = AsyncEngine(whole or made)
    app = App(MODEL, () if adapters is None else adapters.sources)
    app.model = LoadedModel(
        engine,
        tokenizer,
        ChatTemplate(template, tokenizer),
        1_700_000_000,
        "fp_test",
        grammars=Grammars(tokenizer, vocab, ends),
        adapters=adapters,
    )
    server = Server(TracedHandler(app, SpanBuffer(made.clock)), Limits(max_body=max_body), refusal)
    await engine.start()
    host, port = await server.listen_tcp("127.0.0.1", 0)
    url = f"http://{host}:{port}"
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)
    try:
        yield Running(url, client, app, engine, parrot)
    finally:
        parrot.gate.set()
        await client.close()
        await server.aclose()
        if adapters is not None:
            adapters.close()
        await engine.aclose()
        if app.model is not None and app.model.grammars is not None:
            app.model.grammars.close()
        engine.check_idle()


def options_of(folder: Path, **changes: Any) -> ServiceOptions:
    """What a process is started with for the model of a folder, in float32."""
    engine = partial(EngineConfig, dtype="float32", executor="torch", kv_cache_bytes=1 << 20, max_num_seqs=2)
    options: dict[str, Any] = {
        "engine_config": engine, "pooling": "auto", "matryoshka": False, "task": "auto", "sampling": {}, **changes,
    }  # fmt: skip
    return ServiceOptions(
        model=str(folder), served_name="m", socket=None, host="", port=None, max_held=1, drain_seconds=0,
        exit_with_parent=False, **options,
    )  # fmt: skip


@asynccontextmanager
async def serving_model(model: LoadedModel) -> AsyncIterator[Running]:
    """A server of a loaded model, without a parrot; afterwards its engine is idle."""
    app = App(MODEL)
    app.model = model
    server = Server(app, Limits(max_body=1 << 22), refusal)
    await model.engine.start()
    host, port = await server.listen_tcp("127.0.0.1", 0)
    url = f"http://{host}:{port}"
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)
    try:
        yield Running(url, client, app, model.engine, parrot=None)  # type: ignore[arg-type]
    finally:
        await client.close()
        await server.aclose()
        await model.engine.aclose()
        if model.grammars is not None:
            model.grammars.close()
        model.engine.check_idle()


async def until_idle(engine: AsyncEngine) -> None:
    """Return when nothing runs and every page is free."""

    def is_idle() -> bool:
        stats = engine.stats()
        return not (stats.running or stats.waiting) and stats.kv_blocks_free == stats.kv_blocks_total

    await until(is_idle)


async def post(running: Running, path: str, body: Any, **headers: str) -> tuple[int, dict[str, str], Any]:
    """Status, headers by lower-case name, and the JSON that came back; `body` is JSON or raw bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"} | headers
    async with (
        aiohttp.ClientSession() as session,
        session.post(running.url + path, data=data, headers=headers) as response,
    ):
        return response.status, {k.lower(): v for k, v in response.headers.items()}, json.loads(await response.read())


async def get(running: Running, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(running.url + path) as response:
        return response.status, await response.text()
