"""The server as a process: listen, load, serve, drain."""

import asyncio
import gc
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from adapters.http1.server import Limits, Server
from adapters.process import MAX_CONNECTIONS, clients_that_fit
from runtimes.access import keyed
from runtimes.llm.api.http_bodies import refusal
from runtimes.llm.api.pictures import PictureReader
from runtimes.llm.api.server import App
from runtimes.llm.api.submission import LoadedModel
from runtimes.llm.engine.adapters import AdapterPool
from runtimes.llm.engine.async_engine import AsyncEngine, Engine, EngineConfig
from runtimes.llm.engine.classifier_loader import load_classifier
from runtimes.llm.engine.encoder_loader import load_encoder
from runtimes.llm.engine.rank_loader import load_engine
from runtimes.llm.grammar.constraint import Grammars
from runtimes.llm.model.embedding_config import EmbeddingConfig, PoolingName, embedding_config
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.sequence import StepAdapter
from runtimes.llm.text.chat_template import ChatTemplate
from runtimes.llm.text.tokenizer import Tokenizer, UnsupportedTokenizer
from runtimes.llm.text.tokenizer_loader import elsewhere, load_tokenizer
from runtimes.llm.text.vocabularies import difference
from runtimes.llm.vision.prompts import PicturePrompts
from runtimes.llm.vision.settings import vision_settings
from runtimes.llm.vision.tower import load_tower
from runtimes.llm.weights.adapter_files import read_adapter
from runtimes.llm.weights.classifier_files import classifier_config
from runtimes.llm.weights.dense_files import load_dense
from runtimes.llm.weights.encoder_files import gguf_dense, is_encoder
from runtimes.llm.weights.generation_config import sampling_defaults
from runtimes.llm.weights.gguf_checkpoint import gguf_pooling
from runtimes.llm.weights.loader import only_embeds, open_checkpoint
from runtimes.llm.weights.store import resolve
from runtimes.llm.weights.task_adapters import TaskName, task_adapter
from runtimes.llm.weights.tensor_files import InvalidCheckpoint
from runtimes.process import CannotStart, in_thread, listen, precedes, serve, stop_signal
from runtimes.spans import SpanBuffer
from runtimes.traced_handler import TracedHandler
from runtimes.wheels import ModelUnavailable

MAX_BODY = 16 << 20
LAST_WORDS_SECONDS = 1.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """The model and the address: `socket`, or `host` and `port`, or both.

    Only the model is absent from `engine_config`.
    """

    model: str
    served_name: str
    engine_config: Callable[..., EngineConfig]
    pooling: PoolingName
    matryoshka: bool
    task: TaskName
    sampling: Mapping[str, float]
    """Sampling of requests that leave a field out, in place of the model's own."""
    socket: Path | None
    host: str
    port: int | None
    max_held: int
    """Bytes that request bodies may hold at once."""
    drain_seconds: float
    exit_with_parent: bool
    adapters: Mapping[str, str] = field(default_factory=dict)
    """Folders or Hub names of adapters, by the model names of their requests."""
    max_adapters: int = 8
    """Adapters in memory."""
    key: str = ""
    """The key that requests need; none if empty."""


def run(options: ServiceOptions) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    return serve(_serve(options))


async def _serve(options: ServiceOptions) -> int:
    app = App(options.served_name, options.adapters)
    clients = clients_that_fit(MAX_CONNECTIONS, files_each=1)
    limits = Limits(max_body=MAX_BODY, max_held=options.max_held, max_connections=clients)
    handler = keyed(TracedHandler(app, SpanBuffer(time.monotonic)), options.key)
    server = Server(handler, limits, refusal)
    try:
        stop = stop_signal(exit_with_parent=options.exit_with_parent)
        await listen(server, options.socket, options.host, options.port, "listening")
        app.model = await _load_unless(stop, options)
        if app.model is not None and await _engine_ends_before(stop, app.model.engine):
            # Its requests get errors; the supervisor starts a new process.
            await server.drain(LAST_WORDS_SECONDS)
            return 1
        log.info("draining for up to %g s", options.drain_seconds)
        await server.drain(options.drain_seconds)
        if app.model is not None:
            _check_cache(app.model.engine)
    except CannotStart as error:
        log.error("%s", error)
        return 1
    finally:
        await server.aclose()
        if app.model is not None:
            if app.model.adapters is not None:
                app.model.adapters.close()
            await app.model.engine.aclose()
            if app.model.grammars is not None:
                app.model.grammars.close()
    return 0


def _check_cache(engine: AsyncEngine) -> None:
    """Check the KV cache after the last answer, and log the result."""
    stats = engine.stats()
    if stats.running or stats.waiting:
        log.info("ending with %d answers unfinished", stats.running + stats.waiting)
        return
    try:
        engine.check_idle()
    except AssertionError as error:
        log.error("the KV cache is not intact: %s", error)
    else:
        log.info("idle: all %d pages of the KV cache are free or cached", stats.kv_blocks_total)


async def _engine_ends_before(stop: asyncio.Event, engine: AsyncEngine) -> bool:
    ended = asyncio.ensure_future(engine.ended())
    await precedes(ended, stop)
    ended.cancel()
    return not stop.is_set()


# ── loading ───────────────────────────────────────────────────────────────────────────────────────────


async def _load_unless(stop: asyncio.Event, options: ServiceOptions) -> LoadedModel | None:
    """Load the model and start its engine. None if `stop` was set first."""
    loading = in_thread(lambda: load(options), "llm-load")
    if not await precedes(loading, stop):
        return None
    try:
        model = loading.result()
    except (ModelUnavailable, ValueError, OSError, RuntimeError, MemoryError) as error:
        raise CannotStart(f"cannot load {options.model}: {error}") from error
    gc.collect()
    gc.freeze()  # the loaded objects stay; a collection that examines them would delay a step
    await model.engine.start()
    log.info("serving %s: the context is %d tokens", options.served_name, model.engine.max_model_len)
    return model


def load(options: ServiceOptions) -> LoadedModel:
    """The model that the options name; its engine has not started. Raises ValueError or OSError for an unusable one."""
    path = resolve(options.model, progress=True)
    if path.is_dir() and not (path / "config.json").exists():
        raise ModelUnavailable(f"{path} has no config.json: {elsewhere(path) or 'it is no folder of a model'}")
    encodes = is_encoder(path)
    if encodes and options.adapters:
        raise ValueError("an encoder takes no adapters")
    config = options.engine_config(model=path)
    if config.tensor_parallel > 1 and (encodes or options.adapters):
        reason = "an encoder is computed by one process" if encodes else "adapters are not split among processes"
        raise ValueError(f"{reason}: leave tensor_parallel out")
    if not encodes:
        open_checkpoint(path)  # first: of a model that is refused, no tokenizer is missed
    tokenizer = load_tokenizer(path)
    sampling = sampling_defaults(path).overridden(options.sampling, "--sampling")
    pooling = gguf_pooling(path) if options.pooling == "auto" and path.is_file() else options.pooling
    classifies = classifier_config(path, options.task)
    if classifies is not None and options.adapters:
        raise ValueError("a classifier takes no adapters")
    adapter = task_adapter(path, options.task)
    if classifies is None:
        embedding = embedding_config(path, encoder=encodes, pooling=pooling, matryoshka=options.matryoshka)
        if encodes and path.is_file():
            embedding = replace(embedding, dense=gguf_dense(path, pooling))
        if adapter is not None:
            embedding = replace(embedding, prompt=adapter.prompt)
    else:
        embedding = EmbeddingConfig(pooling=classifies.pooling, max_length=classifies.max_length)
    answers = not (encodes or classifies is not None or only_embeds(path))
    if config.speculation is not None and not answers:
        raise ValueError("speculation is for models that answer, and this one does not")
    if config.speculation is not None and config.speculation.model is not None:
        _check_draft(config.speculation.model, tokenizer)
    pictures = _pictures(path, config, tokenizer) if answers else "it does not answer"
    engine = load_encoder(config, embedding, adapter) if encodes else load_engine(config)
    if beyond := tokenizer.limit_to(engine.vocab_size):
        log.warning("end tokens %s are beyond the model's %d rows: they end no answer", beyond, engine.vocab_size)
    classifier = None if classifies is None else load_classifier(path, classifies, tokenizer)
    with_tools = _template(tokenizer.tool_template, tokenizer)
    return LoadedModel(
        engine=AsyncEngine(engine),
        tokenizer=tokenizer,
        chat_template=_template(tokenizer.chat_template, tokenizer),
        tool_template=with_tools if isinstance(with_tools, ChatTemplate) and with_tools.own_format else None,
        sampling=sampling,
        loaded_at=int(time.time()),
        fingerprint=_fingerprint(path, config),
        embedding=embedding,
        dense=load_dense(path, embedding),
        answers=answers,
        classifier=classifier,
        grammars=Grammars.of(tokenizer, engine.vocab_size, engine.eos_token_ids) if answers else None,
        pictures=pictures,
        adapters=_adapters(path, engine, options),
    )


def _check_draft(name: str, tokenizer: Tokenizer) -> None:
    """Raises ValueError for a model that cannot propose tokens to the one of this `tokenizer`."""
    try:
        path = resolve(name, progress=True)
        answers = not (is_encoder(path) or only_embeds(path) or classifier_config(path, "auto") is not None)
        reason = difference(tokenizer, load_tokenizer(path)) if answers else None
    except (ModelUnavailable, ValueError, OSError) as error:
        raise ValueError(f"speculation: the draft {name} cannot be loaded: {error}") from error
    if not answers:
        raise ValueError(f"speculation: the draft {name} is no model that answers: take a small one that does")
    if reason is not None:
        raise ValueError(
            f"speculation: the draft {name} has another vocabulary ({reason}): take a small model of the same family,"
            " or kind ngram, which needs no second model"
        )


def _adapters(path: Path, engine: Engine, options: ServiceOptions) -> AdapterPool | None:
    if not options.adapters or engine.prepared is None:
        return None
    base, prepared = open_checkpoint(path).adapter_base, engine.prepared

    def load(source: str) -> StepAdapter:
        return prepared(read_adapter(resolve(source), base))

    return AdapterPool(options.adapters, options.max_adapters, load, max_waiting=engine.max_queue)


def _pictures(path: Path, config: EngineConfig, tokenizer: Tokenizer) -> PictureReader | str:
    """What reads the model's pictures, or the reason for which they are refused: it then still reads texts."""
    try:
        settings = vision_settings(path)
        if settings is None:
            return "it is a model of text"
        if config.tensor_parallel > 1:
            return "several processes compute it (tensor_parallel), and the rows of a picture are in one"
        prompts = PicturePrompts(settings, tokenizer)
        return PictureReader(load_tower(path, settings, config.dtype, config.device), prompts)
    except (UnsupportedModel, InvalidCheckpoint) as error:
        log.warning("pictures are refused: %s", error)
        return str(error)


def _template(source: str | None, tokenizer: Tokenizer) -> ChatTemplate | str | None:
    """A template, or the reason for which it cannot be used: the model then still completes and embeds texts."""
    try:
        return None if source is None else ChatTemplate(source, tokenizer)
    except UnsupportedTokenizer as error:
        log.warning("chats are refused: %s", error)
        return str(error)


def _fingerprint(path: Path, config: EngineConfig) -> str:
    """A fingerprint that changes when the weights, the arithmetic or the library changes."""
    # Other files of the folder may be links to nothing.
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
    ranks = [f"ranks:{config.tensor_parallel}"] if config.tensor_parallel > 1 else []
    parts = [
        config.dtype,
        config.device,
        torch.__version__,
        *ranks,
        *(f"{file.name}:{file.stat().st_size}" for file in files),
    ]
    return f"fp_{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:10]}"
