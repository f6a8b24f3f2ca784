"""`/v1/embeddings` over a real socket, with OpenAI's own client: a real encoder, and a tiny Llama."""

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from adapters.errors import BackendError, CallerError
from runtimes.llm.api import embeddings
from runtimes.llm.api.submission import LoadedModel
from runtimes.llm.engine.async_engine import AsyncEngine, Engine, EngineConfig, QueueFull, TokenOutput
from runtimes.llm.engine.encoder_loader import load_encoder
from runtimes.llm.model.embedding_config import EmbeddingConfig, embedding_config
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.weights.loader import load_model
from tests.runtimes.llm.reference import save_safetensors, tiny_llama
from tests.runtimes.llm.server_fixtures import MODEL, Running, get, post, serving_model
from tests.support.byte_tokenizer import byte_tokenizer
from tests.support.cases import cases
from tests.support.newer_clients import newer

SENTENCES = [
    "A headrace brings the river to the turbines.",
    "Water flows through a channel to a power plant.",
    "The central bank raised interest rates.",
    "naïve café, 你好 [SEP] 😀",
]


def encoder(folder: Path, **changes: Any) -> LoadedModel:
    """The real one."""
    config = embedding_config(folder, encoder=True)
    engine = load_encoder(EngineConfig(model=folder, dtype="float32", **changes), config)
    return LoadedModel(AsyncEngine(engine), load_tokenizer(folder), None, 1, "fp", config, answers=False)


@pytest.fixture(scope="module")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tiny_llama(vocab_size=258, max_position_embeddings=64)
    return save_safetensors(model, tmp_path_factory.mktemp("llama"))


def decoder(folder: Path, **changes: Any) -> LoadedModel:
    """A tiny one whose tokens are bytes."""
    model = load_model(folder, dtype="float32")
    engine = Engine.serving(model, EngineConfig(model=folder, kv_cache_bytes=1 << 20, **changes))
    return LoadedModel(AsyncEngine(engine), byte_tokenizer(), None, 1, "fp", EmbeddingConfig(pooling="mean"))


@pytest.fixture
async def running(minilm: Path) -> AsyncIterator[Running]:
    async with serving_model(encoder(minilm)) as running:
        yield running


def vectors(answer: Any) -> Any:
    assert [entry.index for entry in answer.data] == list(range(len(answer.data)))
    return np.array([entry.embedding for entry in answer.data])


@torch.inference_mode()  # type: ignore[untyped-decorator]
def expected(folder: Path, texts: Sequence[str]) -> Any:
    """The vectors by transformers, computed as on the model's card."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    encoded = tokenizer(list(texts), padding=True, return_tensors="pt")
    states, mask = model(**encoded).last_hidden_state, encoded["attention_mask"][..., None]
    return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1).numpy()


# ── an encoder ────────────────────────────────────────────────────────────────────────────────────────


async def test_vectors_are_those_of_transformers(running: Running, minilm: Path) -> None:
    answer = await running.client.embeddings.create(model=MODEL, input=SENTENCES)
    made = vectors(answer)
    np.testing.assert_allclose(made, expected(minilm, SENTENCES), atol=1e-4)
    water, river, money, _ = made
    assert water @ river > 0.4 > 0.2 > water @ money
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    counted = sum(len(tokenizer(text)["input_ids"]) for text in SENTENCES)
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (counted, counted)
    assert (answer.object, answer.model) == ("list", MODEL)
    assert (await get(running, "/health"))[0] == 200
    status, body = await get(running, "/v1/models")
    assert (status, '"max_model_len":256' in body) == (200, True)
    assert 'request_finished_total{finished_reason="stop"} 1.0' in (await get(running, "/metrics"))[1]


async def test_both_encodings_and_all_forms_of_input_are_equal(running: Running) -> None:
    create = running.client.embeddings.create
    [plain] = vectors(await create(model=MODEL, input=SENTENCES[0], encoding_format="float"))
    assert len(plain) == 384
    assert np.linalg.norm(plain) == pytest.approx(1, abs=1e-5)
    request = {"model": MODEL, "input": SENTENCES[0], "encoding_format": "base64"}
    _, _, body = await post(running, "/v1/embeddings", request)
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(body["data"][0]["embedding"]), "<f4"), plain, atol=1e-6)
    _, _, body = await post(running, "/tokenize", {"model": MODEL, "prompt": SENTENCES[0]})
    row = [101, *body["tokens"], 102]
    both = vectors(await create(model=MODEL, input=[row, row]))
    np.testing.assert_allclose(both, [plain, plain], atol=1e-5)
    np.testing.assert_allclose(vectors(await create(model=MODEL, input=row)), [plain], atol=1e-5)


@pytest.mark.processes
async def test_more_texts_than_a_step_holds(minilm: Path) -> None:
    """The texts also exceed the queue: the rest is added later."""
    async with serving_model(encoder(minilm, max_num_seqs=4, max_queue=8)) as running:
        texts = [f"{word} {i}" for i in range(15) for word in ("river", "bank", "turbine")]
        made = await running.client.embeddings.create(model=MODEL, input=texts)
        alone = await running.client.embeddings.create(model=MODEL, input=texts[7])
        assert len(made.data) == len(texts)
        np.testing.assert_allclose(vectors(made)[7], vectors(alone)[0], atol=1e-5)
        assert running.engine.stats().steps < len(texts)


async def test_a_text_that_is_too_long_is_refused_or_truncated_on_demand(running: Running) -> None:
    long = "water " * 300
    create = running.client.embeddings.create
    with pytest.raises(openai.BadRequestError, match="256") as refused:
        await create(model=MODEL, input=["short", long])
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="256"):
        await create(model=MODEL, input="x" * 1_000_000)
    fits = vectors(await create(model=MODEL, input="water " * 254))
    for truncate in (-1, 256):
        cut = await create(model=MODEL, input=long, extra_body={"truncate_prompt_tokens": truncate})
        assert cut.usage.prompt_tokens == 256
        np.testing.assert_allclose(vectors(cut), fits, atol=1e-5)
    huge = await create(model=MODEL, input="water " * 100_000, extra_body={"truncate_prompt_tokens": 16})
    assert huge.usage.prompt_tokens == 16


async def test_an_encoder_answers_nothing_else(running: Running) -> None:
    for embed in (
        running.client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}]),
        running.client.completions.create(model=MODEL, prompt="hi"),
        running.client.responses.create(model=MODEL, input="hi"),
    ):
        with pytest.raises(openai.BadRequestError, match="only embeds texts") as refused:
            await embed
        assert (refused.value.code, refused.value.param) == ("unsupported_operation", "model")
    _, _, body = await post(running, "/detokenize", {"model": MODEL, "tokens": [101, 2300, 6223, 102]})
    assert body["prompt"] == "[CLS] water flows[SEP]"


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        *cases(__file__, "wrong fields"),
        ({"input": ["a"] * 2049}, 400, "input"),
        ({"input": [[1] * 250] * 1300}, 400, "input"),
    ],
)
async def test_wrong_fields_are_refused_by_name(
    running: Running, change: dict[str, Any], status: int, param: str | None
) -> None:
    got, _, body = await post(running, "/v1/embeddings", {"model": MODEL, "input": "hi"} | change)
    assert (got, body.get("error", {}).get("param")) == (status, param)


async def test_the_only_model_embeds_for_a_request_without_model(running: Running) -> None:
    for model in ({}, {"model": None}):
        status, _, answer = await post(running, "/v1/embeddings", {"input": "x"} | model)
        assert (status, answer["model"]) == (200, MODEL)
    assert (await post(running, "/v1/embeddings", {"input": "x", "model": ""}))[0] == 404


async def test_malformed_bodies_are_refused(running: Running) -> None:
    for body in (b"{", b"[]", b'{"model": "parrot"}', b'{"input": "x", "model": 5}', b"\xff"):
        assert (await post(running, "/v1/embeddings", body))[0] == 400
    assert (await post(running, "/v1/embeddings", b"{}", **{"content-type": "text/plain"}))[0] == 415


# ── a decoder ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_model_that_answers_embeds_too(llama_folder: Path) -> None:
    async with serving_model(decoder(llama_folder)) as running:
        answer = await running.client.embeddings.create(model=MODEL, input=["water", "river"])
        chat = await running.client.completions.create(model=MODEL, prompt="water", max_tokens=3, temperature=0)
        assert chat.choices[0].finish_reason == "length"
        theirs = tiny_llama(vocab_size=258, max_position_embeddings=64).model
        for text, vector in zip(["water", "river"], vectors(answer), strict=True):
            with torch.inference_mode():
                mean = theirs(torch.tensor([byte_tokenizer().encode(text)])).last_hidden_state[0].mean(dim=0)
            np.testing.assert_allclose(vector, torch.nn.functional.normalize(mean, dim=0).numpy(), atol=1e-4)
        with pytest.raises(openai.BadRequestError, match="64"):
            await running.client.embeddings.create(model=MODEL, input="x" * 65)


async def test_a_vector_is_cut_where_that_means_something(llama_folder: Path) -> None:
    model = decoder(llama_folder)
    some = replace(model, embedding=EmbeddingConfig(pooling="last", normalize=False, dimensions=frozenset({8, 4096})))
    async with serving_model(some) as running:
        create = running.client.embeddings.create
        [whole] = vectors(await create(model=MODEL, input="water"))
        assert np.linalg.norm(whole) != pytest.approx(1, abs=1e-3)
        [cut] = vectors(await create(model=MODEL, input="water", dimensions=8))
        np.testing.assert_allclose(cut, whole[:8] / np.linalg.norm(whole[:8]), atol=1e-5)
        with pytest.raises(openai.BadRequestError, match="to 8, 4096 only"):
            await create(model=MODEL, input="water", dimensions=9)
        with pytest.raises(openai.BadRequestError, match="above the model's 32"):
            await create(model=MODEL, input="water", dimensions=4096)


async def test_a_client_that_leaves_takes_its_texts_along(llama_folder: Path) -> None:
    model = decoder(llama_folder, max_num_seqs=1)
    async with serving_model(model) as running:
        embed = asyncio.ensure_future(running.client.embeddings.create(model=MODEL, input=["x" * 60] * 500))
        async with asyncio.timeout(300):
            while not running.engine.stats().waiting:
                await asyncio.sleep(0.005)
            embed.cancel()
            await asyncio.wait([embed])
            while (stats := running.engine.stats()).running or stats.waiting:
                await asyncio.sleep(0.005)


async def test_a_model_that_computes_nan_is_an_error(llama_folder: Path) -> None:
    model = decoder(llama_folder)
    model.engine._engine._pooler._executor.model.norm.fill_(float("nan"))  # type: ignore[union-attr]
    async with serving_model(model) as running:
        with pytest.raises(openai.InternalServerError, match="not finite"):
            await running.client.embeddings.create(model=MODEL, input="x")


# ── the work ──────────────────────────────────────────────────────────────────────────────────────────


def output(value: float) -> TokenOutput:
    return TokenOutput(-1, "stop", 0, np.array([value], np.float32))


@pytest.mark.looptime
async def test_a_full_queue_is_waited_for_while_work_is_under_way() -> None:
    places = 3
    most = 0

    async def embeds(row: Sequence[int]) -> TokenOutput:
        nonlocal places, most
        if not places:
            raise QueueFull("full")
        places -= 1
        most = max(most, 3 - places)
        await asyncio.sleep(row[0])
        places += 1
        return output(row[0])

    rows = [[i % 5] for i in range(100)]
    outputs = await embeddings.embedded(rows, embeds)
    assert [one.pooled[0] for one in outputs if one.pooled is not None] == [i % 5 for i in range(100)]
    assert most == 3
    places = 0
    with pytest.raises(QueueFull):
        await embeddings.embedded(rows, embeds)


@pytest.mark.looptime
async def test_one_that_fails_ends_the_others() -> None:
    under_way = 0

    async def embeds(row: Sequence[int]) -> TokenOutput:
        nonlocal under_way
        under_way += 1
        try:
            await asyncio.sleep(row[0])
            raise BackendError("dead") if row[0] == 1 else ValueError("bad token")
        finally:
            under_way -= 1

    with pytest.raises(BackendError):
        await embeddings.embedded([[9], [1], [5]], embeds)
    assert under_way == 0
    with pytest.raises(CallerError, match="bad token"):
        await embeddings.embedded([[2]], embeds)


async def test_invented_fields_change_no_vector_and_are_listed(running: Running) -> None:
    body = {"model": MODEL, "input": SENTENCES[:1]}
    plain, extended = [await post(running, "/v1/embeddings", sent) for sent in (body, newer(body))]
    assert (plain[0], extended[0]) == (200, 200), extended[2]
    assert plain[2] == extended[2]
    assert "new_field_0" in extended[1]["x-headrace-ignored"]
    strict = await post(running, "/v1/embeddings", newer(body), **{"x-headrace-strict": "true"})
    assert (strict[0], strict[2]["error"]["code"]) == (400, "unsupported_parameter")
