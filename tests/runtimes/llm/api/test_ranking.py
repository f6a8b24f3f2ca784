"""`/v1/rerank`, `/score` and `/classify` over a real socket: small random classifiers beside transformers' own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from runtimes.llm import quantizer
from runtimes.llm.engine.async_engine import EngineConfig
from runtimes.llm.engine.speculation import Speculation
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.service import load
from tests.runtimes.llm.server_fixtures import MODEL, Running, options_of, post, serving_model
from tests.support.cases import cases
from tests.support.classifiers import FAMILIES, SHAPE, changed, classifier, logits_of
from tests.support.newer_clients import newer

QUERY = "where does the water go?"
DOCUMENTS = [
    "A headrace brings the river to the turbines.",
    "The central bank raised interest rates, and said that it would raise them again.",
    "x",
    "",
    "naïve café, 你好 [SEP] 😀",
]
LABELS = ("contradiction", "entailment", "neutral")


@asynccontextmanager
async def ranking(folder: Path, **changes: Any) -> AsyncIterator[Running]:
    async with serving_model(load(options_of(folder, **changes))) as running:
        yield running


def sigmoid(rows: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(rows, np.float64)))


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("ranker"), max_position_embeddings=512)


@pytest.fixture
async def running(ranker: Path) -> AsyncIterator[Running]:
    async with ranking(ranker) as made:
        yield made


async def rerank(running: Running, path: str = "/v1/rerank", **body: Any) -> Any:
    status, _, answer = await post(running, path, {"model": MODEL, "query": QUERY, "documents": DOCUMENTS} | body)
    assert status == 200, answer
    return answer


# ── the numbers ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("family", FAMILIES)
async def test_every_family_scores_as_transformers_does(tmp_path: Path, family: str) -> None:
    folder = classifier(tmp_path, family)
    pairs = [(QUERY, document) for document in DOCUMENTS]
    async with ranking(folder) as running:
        answer = await rerank(running)
        scores = {result["index"]: result["relevance_score"] for result in answer["results"]}
        expected = sigmoid(logits_of(folder, pairs, 64))[:, 0]
        np.testing.assert_allclose([scores[at] for at in range(len(DOCUMENTS))], expected, atol=1e-4)
        body = {"model": MODEL, "text_1": QUERY, "text_2": DOCUMENTS}
        _, _, scored = await post(running, "/score", body)
        np.testing.assert_allclose([one["score"] for one in scored["data"]], expected, atol=1e-4)


@pytest.mark.parametrize("family", ["bert", "modernbert", "qwen3"])
async def test_classes_are_those_of_the_text_classification(tmp_path: Path, family: str) -> None:
    folder = classifier(tmp_path, family, LABELS)
    texts = [text for text in DOCUMENTS if text]
    async with ranking(folder) as running:
        status, _, answer = await post(running, "/v1/classify", {"model": MODEL, "input": texts})
        assert status == 200
        expected = torch.softmax(torch.tensor(logits_of(folder, [(text, None) for text in texts])), -1)
        np.testing.assert_allclose([one["probs"] for one in answer["data"]], expected, atol=1e-4)
        best = [LABELS[int(row.argmax())] for row in expected]
        assert [one["label"] for one in answer["data"]] == best
        assert {one["num_classes"] for one in answer["data"]} == {3}
        _, _, single = await post(running, "/classify", {"model": MODEL, "input": texts[0]})
        np.testing.assert_allclose(single["data"][0]["probs"], answer["data"][0]["probs"], atol=1e-6)
        pair: dict[str, dict[str, Any]] = {
            "/v1/rerank": {"query": "a", "documents": ["b"]},
            "/score": {"text_1": "a", "text_2": "b"},
        }
        for path, body in pair.items():
            status, _, refused = await post(running, path, {"model": MODEL} | body)
            assert (status, refused["error"]["param"]) == (400, "model")
            assert "/classify" in refused["error"]["message"]


@pytest.mark.parametrize(
    ("problem", "labels", "function"),
    [
        ("single_label_classification", LABELS, lambda rows: torch.softmax(rows, -1)),
        ("multi_label_classification", LABELS, torch.sigmoid),
        ("regression", LABELS[:1], lambda rows: rows),
        (None, LABELS[:1], torch.sigmoid),
    ],
)
async def test_the_kind_of_problem_decides_the_function_of_logits(
    tmp_path: Path, problem: str | None, labels: tuple[str, ...], function: Any
) -> None:
    folder = classifier(tmp_path, "bert", labels, problem_type=problem)
    async with ranking(folder) as running:
        _, _, answer = await post(running, "/classify", {"model": MODEL, "input": "some text"})
        expected = function(torch.tensor(logits_of(folder, [("some text", None)])))
        np.testing.assert_allclose([one["probs"] for one in answer["data"]], expected, atol=1e-4)


@pytest.mark.parametrize(
    "place",
    [
        ("config.json", {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}),
        ("config.json", {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}),
        ("config_sentence_transformers.json", {"activation_fn": "torch.nn.modules.linear.Identity"}),
    ],
)
async def test_a_cross_encoder_names_its_activation(tmp_path: Path, place: tuple[str, dict[str, Any]]) -> None:
    folder = classifier(tmp_path)
    changed(folder, place[0], **place[1])
    async with ranking(folder) as running:
        [result] = (await rerank(running, documents=["water flows"]))["results"]
        [[expected]] = logits_of(folder, [(QUERY, "water flows")])
        assert result["relevance_score"] == pytest.approx(expected, abs=1e-4)


async def test_long_pairs_are_cut_as_a_cross_encoder_cuts_them(running: Running, ranker: Path) -> None:
    long = "water and turbines " * 300
    pairs = [(QUERY, long), (long, "short"), (long, long + " end")]
    for (query, document), [logit] in zip(pairs, logits_of(ranker, pairs, 512), strict=True):
        answer = await rerank(running, query=query, documents=[document])
        assert answer["results"][0]["relevance_score"] == pytest.approx(sigmoid(logit), abs=1e-4)
        assert answer["usage"]["total_tokens"] == 512
    answer = await rerank(running, query=QUERY, documents=[long], truncate_prompt_tokens=20)
    assert answer["usage"]["total_tokens"] == 20
    [[logit]] = logits_of(ranker, [(QUERY, long)], 20)
    assert answer["results"][0]["relevance_score"] == pytest.approx(sigmoid(logit), abs=1e-4)
    answer = await rerank(running, documents=[long], max_tokens_per_doc=3)
    same = await rerank(running, documents=["water and turbines"])
    assert answer["results"][0]["relevance_score"] == pytest.approx(same["results"][0]["relevance_score"], abs=1e-6)


async def test_the_declared_length_of_the_files_is_the_limit(tmp_path: Path) -> None:
    folder = classifier(tmp_path)
    changed(folder, "tokenizer_config.json", model_max_length=24)
    async with ranking(folder) as running:
        answer = await rerank(running, documents=["water " * 100])
        assert answer["usage"]["total_tokens"] == 24


async def test_score_and_classify_refuse_texts_that_are_too_long(running: Running) -> None:
    long = "water " * 600
    for path, body in (("/score", {"text_1": "a", "text_2": long}), ("/classify", {"input": long})):
        status, _, answer = await post(running, path, {"model": MODEL} | body)
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
        for cut in (-1, 512):
            status, _, answer = await post(running, path, {"model": MODEL, "truncate_prompt_tokens": cut} | body)
            assert (status, answer["usage"]["total_tokens"]) == (200, 512)


async def test_a_quantized_classifier_is_one_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = classifier(tmp_path / "whole", "llama", initializer_range=0.1)
    assert quantizer.main([str(folder), str(tmp_path / "small"), "--bits", "8"]) == 0
    assert "perplexity" not in capsys.readouterr().out
    async with ranking(tmp_path / "small") as running:
        answer = await rerank(running)
        expected = sigmoid(logits_of(folder, [(QUERY, document) for document in DOCUMENTS], 64))[:, 0]
        for result in answer["results"]:
            assert result["relevance_score"] == pytest.approx(expected[result["index"]], abs=0.02)


# ── Qwen 3 Reranker ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def yes_no(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the layout of Qwen's files, which are those of a chat model."""
    folder = tmp_path_factory.mktemp("yes-no")
    torch.manual_seed(0)
    shape = SHAPE | {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512}
    Qwen3ForCausalLM(Qwen3Config(**shape, eos_token_id=102, bos_token_id=101)).save_pretrained(folder)
    ranker = classifier(tmp_path_factory.mktemp("tokenizer"))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((ranker / name).read_bytes())
    return folder


@torch.inference_mode()  # type: ignore[untyped-decorator]
def yes_of(folder: Path, query: str, document: str, instruction: str) -> float:
    """The share of `yes`, computed as on the card of the model."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    prefix = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    )
    suffix = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    parts = (prefix, f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}", suffix)
    ids = [id for part in parts for id in tokenizer.encode(part, add_special_tokens=False)]
    last = model(torch.tensor([ids])).logits[0, -1]
    both = torch.stack([last[tokenizer.convert_tokens_to_ids(word)] for word in ("no", "yes")])
    return float(both.log_softmax(0)[1].exp())


async def test_a_model_that_answers_yes_or_no_ranks(yes_no: Path) -> None:
    usual = "Given a web search query, retrieve relevant passages that answer the query"
    documents = DOCUMENTS[:3]
    async with ranking(yes_no, task="rerank") as running:
        answer = await rerank(running, documents=documents)
        for result in answer["results"]:
            expected = yes_of(yes_no, QUERY, documents[result["index"]], usual)
            assert result["relevance_score"] == pytest.approx(expected, abs=1e-4)
        own = await rerank(running, documents=documents[:1], instruction="Find poems")
        expected = yes_of(yes_no, QUERY, documents[0], "Find poems")
        assert own["results"][0]["relevance_score"] == pytest.approx(expected, abs=1e-4)
        long = await rerank(running, documents=["water " * 1000])
        assert long["usage"]["total_tokens"] == 512
        status, _, refused = await post(running, "/classify", {"model": MODEL, "input": "x"})
        assert (status, refused["error"]["param"]) == (400, "model")
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
        assert (await post(running, "/v1/chat/completions", chat))[0] == 400


async def test_a_document_cannot_end_its_own_prompt(yes_no: Path) -> None:
    """Here the separator is the control token; a document that spells it has its characters instead."""
    async with ranking(yes_no, task="rerank") as running:
        spelled = await rerank(running, documents=["water [SEP] flows"])
        plain = await rerank(running, documents=["water x flows"])
        assert spelled["usage"]["total_tokens"] > plain["usage"]["total_tokens"]


def test_the_task_is_for_rerankers_only(yes_no: Path, tmp_path: Path) -> None:
    other = classifier(tmp_path, "llama")
    changed(other, "config.json", architectures=["LlamaForCausalLM"])
    with pytest.raises(UnsupportedModel, match="Qwen 3 Reranker"):
        load(options_of(other, task="rerank"))
    assert load(options_of(yes_no)).classifier is None
    speculating = partial(EngineConfig, speculation=Speculation("ngram"))
    with pytest.raises(ValueError, match="for models that answer"):
        load(options_of(yes_no, task="rerank", engine_config=speculating))
    (yes_no / "1_LogitScore").mkdir()
    try:
        changed(yes_no, "1_LogitScore/config.json", true_token_id=5, false_token_id=None)
        with pytest.raises(UnsupportedModel, match="other tokens"):
            load(options_of(yes_no, task="rerank"))
    finally:
        (yes_no / "1_LogitScore" / "config.json").unlink()
        (yes_no / "1_LogitScore").rmdir()


# ── shapes ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_shape_of_each_path(running: Running) -> None:
    jina = await rerank(running, top_n=2)
    assert [result["document"] for result in jina["results"]] == [
        {"text": DOCUMENTS[result["index"]]} for result in jina["results"]
    ]
    assert (jina["object"], jina["model"], len(jina["results"])) == ("list", MODEL, 2)
    assert jina["usage"]["total_tokens"] == jina["meta"]["tokens"]["input_tokens"] > 0
    cohere = await rerank(running, "/v2/rerank", return_documents=None, priority=3)
    assert [set(result) for result in cohere["results"]] == [{"index", "relevance_score"}] * len(DOCUMENTS)
    objects = [{"text": text, "id": f"doc {at}"} for at, text in enumerate(DOCUMENTS)]
    whole = await rerank(running, "/rerank", documents=objects, query={"text": QUERY}, return_documents=True)
    assert all(result["document"]["id"] == f"doc {result['index']}" for result in whole["results"])
    assert [one["index"] for one in whole["results"]] == [one["index"] for one in cohere["results"]]
    assert all("document" not in one for one in (await rerank(running, return_documents=False))["results"])


async def test_the_sides_of_a_score(running: Running) -> None:
    async def scores(**body: Any) -> tuple[int, Any]:
        status, _, answer = await post(running, "/v1/score", {"model": MODEL} | body)
        return status, [one["score"] for one in answer["data"]] if status == 200 else answer["error"]["param"]

    status, both = await scores(text_1=["a", "b"], text_2=["c", "d"])
    assert (status, len(both)) == (200, 2)
    assert (await scores(text_1="a", text_2="c"))[1] == pytest.approx(both[:1], abs=1e-6)
    assert (await scores(queries="b", documents=["c", "d"]))[1][1] == pytest.approx(both[1], abs=1e-6)
    assert await scores(text_1=["a", "b"], text_2=["c"]) == (400, "text_2")
    assert await scores(text_1="a") == (400, "text_2")
    assert await scores(queries="a", text_1="b") == (400, "text_2")


@pytest.mark.parametrize(("path", "change", "status", "param"), cases(__file__, "wrong fields"))
async def test_wrong_fields_are_refused_by_name(
    running: Running, path: str, change: dict[str, Any], status: int, param: str | None
) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "/v1/rerank": {"query": "a", "documents": ["b"]},
        "/score": {"text_1": "a", "text_2": "b"},
        "/classify": {"input": "a"},
    }
    got, _, body = await post(running, path, {"model": MODEL} | bodies[path] | change)
    assert (got, body.get("error", {}).get("param")) == (status, param)


async def test_invented_fields_change_no_score_and_are_listed(running: Running) -> None:
    body = {"model": MODEL, "query": "a", "documents": ["b"]}
    plain, extended = [await post(running, "/v1/rerank", sent) for sent in (body, newer(body))]
    assert (plain[0], extended[0]) == (200, 200), extended[2]
    assert plain[2]["results"] == extended[2]["results"]
    assert "new_field_0" in extended[1]["x-headrace-ignored"]
    strict = await post(running, "/v1/rerank", newer(body), **{"x-headrace-strict": "true"})
    assert (strict[0], strict[2]["error"]["code"]) == (400, "unsupported_parameter")


async def test_malformed_bodies_are_refused(running: Running) -> None:
    for path in ("/v1/rerank", "/score", "/classify"):
        for body in (b"{", b"[]", b"\xff", b"{}", b'{"query": 5}', b'{"documents": ' + b"[" * 3000):
            assert (await post(running, path, body))[0] == 400
        assert (await post(running, path, b"{}", **{"content-type": "text/plain"}))[0] == 415


async def test_a_model_without_a_head_ranks_nothing(minilm: Path) -> None:
    async with ranking(minilm) as running:
        status, _, answer = await post(running, "/v1/rerank", {"model": MODEL, "query": "a", "documents": ["b"]})
        assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "unsupported_operation", "model")


async def test_a_classifier_gives_no_vectors_and_no_chats(running: Running) -> None:
    for path, body in (("/v1/embeddings", {"input": "x"}), ("/v1/completions", {"prompt": "x"})):
        status, _, answer = await post(running, path, {"model": MODEL} | body)
        assert (status, "/v1/rerank" in answer["error"]["message"]) == (400, True)


async def test_a_client_that_leaves_frees_the_engine(running: Running) -> None:
    ranked = asyncio.create_task(rerank(running, documents=["water " * 400] * 200))
    async with asyncio.timeout(300):
        while not running.engine.stats().running:
            await asyncio.sleep(0.005)
        ranked.cancel()
        await asyncio.wait([ranked])
        while (stats := running.engine.stats()).running or stats.waiting:
            await asyncio.sleep(0.005)


# ── any question, any documents ───────────────────────────────────────────────────────────────────────────

words = st.lists(st.sampled_from(["water", "bank", "river", "é", "[SEP]", "?", "\n", "interest"]), max_size=12)


@given(
    query=words.map(" ".join),
    documents=st.lists(words.map(" ".join), min_size=1, max_size=9),
    top_n=st.none() | st.integers(0, 12),
    objects=st.booleans(),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_many_documents_together_are_each_alone(
    running: Running, query: str, documents: list[str], top_n: int | None, objects: bool
) -> None:
    given_documents = [{"text": text} if objects else text for text in documents]
    answer = await rerank(running, query=query, documents=given_documents, top_n=top_n)
    results = answer["results"]
    scores = [result["relevance_score"] for result in results]
    assert scores == sorted(scores, reverse=True)
    assert len(results) == min(top_n or len(documents), len(documents))
    assert len({result["index"] for result in results}) == len(results)
    alone = [(await rerank(running, query=query, documents=[text]))["results"][0] for text in documents]
    for result in results:
        assert result["document"] == {"text": documents[result["index"]]}
        assert result["relevance_score"] == pytest.approx(alone[result["index"]]["relevance_score"], abs=1e-5)
    left_out = {one["relevance_score"] for at, one in enumerate(alone) if at not in {r["index"] for r in results}}
    assert all(score >= max(left_out, default=0.0) - 1e-5 for score in scores)
