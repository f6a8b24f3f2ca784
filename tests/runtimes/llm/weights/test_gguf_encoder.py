"""Encoders from GGUF files: the vectors and the tokens of the model's own folder."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, T5EncoderModel

from runtimes.llm.engine.encoder_loader import read_encoder
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.sequence import Chunk, SamplingParams
from runtimes.llm.service import load
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.weights.encoder_files import gguf_dense
from tests.runtimes.llm.server_fixtures import MODEL, options_of, post, serving_model
from tests.support.embedders import vector_of, with_modules
from tests.support.gguf_encoders import write_encoder

TEXTS = ["A headrace brings the river to the turbines.", "x", "naïve café, 你好 😀"]
ROWS = [[5, 6, 7], [8], [9, 10, 11], list(range(4, 34)), [5, 6, 7, 8]]
SHAPE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 40, "initializer_range": 0.4,
}  # fmt: skip
GEMMA = {
    "use_bidirectional_attention": True, "num_key_value_heads": 2, "head_dim": 12, "sliding_window": 8,
    "query_pre_attn_scalar": 12, "num_hidden_layers": 7,
}  # fmt: skip
T5 = {"d_model": 32, "d_kv": 12, "d_ff": 48, "num_layers": 2, "num_heads": 4, "relative_attention_num_buckets": 8}
T5_FIELDS = {"attention.relative_buckets_count": 8, "context_length": 512}
MODERN = {"num_hidden_layers": 4, "local_attention": 8, "pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2}
BIASED = {"norm_bias": True, "attention_bias": True, "mlp_bias": True}
MODERN_FIELDS = {"rope.freq_base": 160000.0, "rope.freq_base_swa": 10000.0}
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "bert": ("bert", {}, {}),
    "xlm-roberta": ("bert", {"pad_token_id": 1, "type_vocab_size": 1}, {"context_length": 38}),
    "nomic_bert": ("nomic-bert", {"pad_token_id": 0}, {"rope.freq_base": 1000.0}),
    "t5": ("t5encoder", T5, T5_FIELDS),
    "t5, gated": ("t5encoder", T5 | {"feed_forward_proj": "gated-gelu"}, T5_FIELDS),
    "modernbert": ("modern-bert", MODERN, MODERN_FIELDS),
    "modernbert, biased": ("modern-bert", MODERN | BIASED, MODERN_FIELDS | {"attention.sliding_window_pattern": 3}),
    "modernbert, silu": (
        "modern-bert",
        MODERN | {"hidden_activation": "silu"},
        MODERN_FIELDS | {"hidden_activation": "silu"},
    ),
    "gemma3_text": ("gemma-embedding", GEMMA, {"rope.freq_base": 1_000_000.0}),
}


def made(folder: Path, family: str) -> Any:
    """A small random model, saved in `folder`."""
    torch.manual_seed(0)
    kind, changes = family.partition(",")[0], FAMILIES[family][1]
    if kind == "t5":
        model = T5EncoderModel(AutoConfig.for_model(kind, **({"vocab_size": 64} | changes))).eval()
    else:
        model = AutoModel.from_config(AutoConfig.for_model(kind, **(SHAPE | changes))).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(0, 0.4) if "bias" in name else weight.add_(0.4 * torch.randn_like(weight))
    model.save_pretrained(folder)
    return model


def written(folder: Path, family: str, **changes: Any) -> Path:
    architecture, _, fields = FAMILIES[family]
    given = {"fields": fields | changes.pop("fields", {}), "tokenizer": False, **changes}
    return write_encoder(folder / "m.gguf", folder, architecture, **given)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def assert_same(path: Path, theirs: Any) -> None:
    params = SamplingParams(max_tokens=1)
    chunks = [Chunk(i, 0, tuple(row), (i,), True, params, 0, "mean") for i, row in enumerate(ROWS)]
    states = read_encoder(path, dtype="float32").hidden(chunks).split([len(row) for row in ROWS])
    for row, mine in zip(ROWS, states, strict=True):
        torch.testing.assert_close(mine, theirs(torch.tensor([row])).last_hidden_state[0], atol=2e-4, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    theirs = made(tmp_path, family)
    assert_same(written(tmp_path, family), theirs)


async def embedded(path: Path, **options: Any) -> Any:
    async with serving_model(load(options_of(path, **options))) as running:
        status, _, answer = await post(running, "/v1/embeddings", {"model": MODEL, "input": TEXTS})
        assert status == 200, answer
    return np.array([entry["embedding"] for entry in answer["data"]])


@pytest.mark.parametrize("pooling", ["mean", "cls"])
async def test_the_real_model_has_the_vectors_of_its_folder(tmp_path: Path, minilm: Path, pooling: str) -> None:
    path = write_encoder(tmp_path / "minilm.gguf", minilm, "bert", pooling=pooling)
    np.testing.assert_allclose(await embedded(path), await embedded(minilm, pooling=pooling), atol=1e-5)


async def test_embeddinggemma_has_its_dense_layers(tmp_path: Path, minilm: Path) -> None:
    config = AutoConfig.for_model("gemma3_text", **(SHAPE | GEMMA | {"vocab_size": 30522}))
    theirs = AutoModel.from_config(config).eval()
    theirs.save_pretrained(tmp_path)
    shutil.copy(minilm / "tokenizer.json", tmp_path)
    with_modules(tmp_path, dense=[(32, 96, False, "Identity"), (96, 24, False, "Identity")])
    own = {f"{name}.weight": _dense(tmp_path, name) for name in ("dense_2", "dense_3")}
    path = write_encoder(
        tmp_path / "m.gguf", tmp_path, "gemma-embedding", fields={"rope.freq_base": 1_000_000.0}, tensors=own
    )
    rows = [load_tokenizer(path).encode_whole(text) for text in TEXTS]
    with torch.inference_mode():
        expected = [vector_of(tmp_path, theirs(torch.tensor([row])).last_hidden_state[0]).numpy() for row in rows]
    np.testing.assert_allclose(await embedded(path), expected, atol=2e-4)


def _dense(folder: Path, name: str) -> torch.Tensor:
    return load_file(folder / f"{name[-1]}_Dense" / "model.safetensors")["linear.weight"]


def test_gemma_without_its_dense_layers_is_refused(tmp_path: Path) -> None:
    made(tmp_path, "gemma3_text")
    with pytest.raises(UnsupportedModel, match=r"dense layers.*--sentence-transformers-dense-modules"):
        gguf_dense(written(tmp_path, "gemma3_text"), "mean")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensors": {"blk.0.attn_q_norm.weight": torch.ones(8)}}, r"attn_q_norm\.weight.*would be wrong"),
        ({"tensors": {"blk.0.attn_q.weight": torch.ones(8, 8)}}, r"attn_q\.weight is \[8, 8\]"),
        ({"fields": {"attention.causal": True}}, "causal attention"),
        ({"fields": {"block_count": 3}}, r"lacks tensor blk\.2"),
        ({"fields": {"embedding_length": "wide"}}, "hidden_size is 'wide'"),
    ],
)
def test_files_that_would_make_wrong_vectors_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    made(tmp_path, "bert")
    with pytest.raises(UnsupportedModel, match=message):
        read_encoder(written(tmp_path, "bert", **changes))


def test_t5_without_a_declared_pooling_is_refused(tmp_path: Path) -> None:
    made(tmp_path, "t5")
    path = written(tmp_path, "t5", pooling=None)
    with pytest.raises(UnsupportedModel, match=r"dense layers of sentence-t5.*set `pooling`"):
        gguf_dense(path, "auto")
    assert gguf_dense(path, "mean") == ()


def test_a_dense_layer_for_every_token_is_refused(tmp_path: Path) -> None:
    made(tmp_path, "bert")
    path = written(tmp_path, "bert", tensors={"dense_2.weight": torch.ones(8, 32)})
    with pytest.raises(UnsupportedModel, match="a dense layer for every token"):
        gguf_dense(path, "mean")


def test_a_reranker_is_refused(tmp_path: Path, minilm: Path) -> None:
    with pytest.raises(UnsupportedModel, match="pooling_type rank"):
        load(options_of(write_encoder(tmp_path / "m.gguf", minilm, "bert", pooling="rank")))
