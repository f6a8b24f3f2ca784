"""Encoders against transformers' own: the same numbers, beside any other texts of the step."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, BertConfig, BertModel, RobertaConfig, RobertaModel, T5EncoderModel

from runtimes.llm.engine.async_engine import EngineConfig, PromptTooLong
from runtimes.llm.engine.encoder_loader import encoder_engine, read_encoder
from runtimes.llm.model.embedding_config import EmbeddingConfig
from runtimes.llm.model.encoders.encoder import Encoder
from runtimes.llm.model.matrix import WeightsName
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.sequence import Chunk, SamplingParams
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.weights.encoder_files import is_encoder
from runtimes.llm.weights.loader import DtypeName
from runtimes.llm.weights.tensor_files import InvalidCheckpoint
from tests.support.llm_engines import ONE, run

TEXTS = [[5, 6, 7], [8], [9, 10, 11], list(range(4, 34)), [5, 6, 7, 8]]
SHAPE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 40, "initializer_range": 0.4,
}  # fmt: skip


def tiny(family: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    if family == "bert":
        return BertModel(BertConfig(**(SHAPE | changes)), add_pooling_layer=False).eval()
    return RobertaModel(RobertaConfig(**(SHAPE | {"pad_token_id": 1} | changes)), add_pooling_layer=False).eval()


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def chunks(texts: list[list[int]]) -> list[Chunk]:
    params = SamplingParams(max_tokens=1)
    return [Chunk(i, 0, tuple(text), (i,), True, params, 0, "mean") for i, text in enumerate(texts)]


@torch.inference_mode()  # type: ignore[untyped-decorator]
def assert_same(ours: Encoder, theirs: Any, *, tolerance: float = 1e-4) -> None:
    states = ours.hidden(chunks(TEXTS)).split([len(text) for text in TEXTS])
    for text, mine in zip(TEXTS, states, strict=True):
        torch.testing.assert_close(mine, theirs(torch.tensor([text])).last_hidden_state[0], atol=tolerance, rtol=0)


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_hidden_states_are_those_of_transformers(tmp_path: Path, family: str, activation: str) -> None:
    theirs = tiny(family, hidden_act=activation)
    folder = saved(theirs, tmp_path)
    assert is_encoder(folder)
    assert_same(read_encoder(folder, dtype="float32"), theirs)


def test_a_model_with_a_head_stores_its_encoder_under_a_prefix(tmp_path: Path) -> None:
    theirs = tiny("bert")
    file = saved(theirs, tmp_path) / "model.safetensors"
    save_file({f"bert.{name}": tensor for name, tensor in load_file(file).items()}, file)
    assert_same(read_encoder(tmp_path, dtype="float32"), theirs)


def test_few_bits_yield_the_same_vectors(tmp_path: Path) -> None:
    theirs = tiny("bert", initializer_range=0.02)
    folder = saved(theirs, tmp_path)
    exact = read_encoder(folder, dtype="float32").hidden(chunks(TEXTS))
    rough = read_encoder(folder, dtype="bfloat16").hidden(chunks(TEXTS))
    assert torch.cosine_similarity(exact, rough, dim=-1).min() > 0.999


@torch.inference_mode()  # type: ignore[untyped-decorator]
def test_the_real_model_is_equal_in_both_formats(minilm: Path) -> None:
    tokenizer, theirs = load_tokenizer(minilm), AutoModel.from_pretrained(minilm).eval()
    texts = ["The river brings water to the turbines.", "x", "To be, or not to be: that is the question. " * 4]
    rows = [tokenizer.encode_whole(text) for text in texts]
    exact = [theirs(torch.tensor([row])).last_hidden_state[0].mean(dim=0) for row in rows]
    formats: list[tuple[DtypeName, float]] = [("float32", 1e-4), ("bfloat16", 0.1)]
    for dtype, far in formats:
        states = read_encoder(minilm, dtype=dtype).hidden(chunks(rows)).split([len(row) for row in rows])
        for mine, theirs_ in zip(states, exact, strict=True):
            torch.testing.assert_close(mine.mean(dim=0), theirs_, atol=far, rtol=0)
            assert torch.cosine_similarity(mine.mean(dim=0), theirs_, dim=0) > 0.999


@pytest.mark.parametrize(("weights", "least"), [("int8", 0.999), ("int4", 0.97)])
def test_weights_in_few_bits_yield_nearly_the_same_vectors(tmp_path: Path, weights: WeightsName, least: float) -> None:
    folder = saved(tiny("bert", initializer_range=0.02, intermediate_size=64), tmp_path)
    exact = read_encoder(folder, dtype="float32").hidden(chunks(TEXTS))
    rough = read_encoder(folder, dtype="float32", weights=weights).hidden(chunks(TEXTS))
    assert not torch.equal(exact, rough)
    assert torch.cosine_similarity(exact, rough, dim=-1).min() > least


def test_texts_are_batched_and_none_is_cut(tmp_path: Path) -> None:
    """Thirty tokens a step: two long texts do not share one."""
    theirs = tiny("bert")
    encoder = read_encoder(saved(theirs, tmp_path), dtype="float32")
    config = EngineConfig(model=tmp_path, max_num_seqs=4, max_num_batched_tokens=8, max_model_len=30)
    engine = encoder_engine(encoder, config, EmbeddingConfig(pooling="mean"))
    ids = [engine.add(text, ONE, pooling="mean") for text in [*TEXTS, *TEXTS]]
    outputs = run(engine)
    assert engine.stats().steps == 5  # of 3 + 1 + 3, 30, 4 + 3 + 1 + 3, 30, 4 tokens
    for id_, text in zip(ids, [*TEXTS, *TEXTS], strict=True):
        with torch.inference_mode():
            expected = theirs(torch.tensor([text])).last_hidden_state[0].mean(dim=0)
        torch.testing.assert_close(torch.from_numpy(outputs[id_][0].pooled), expected, atol=1e-4, rtol=0)
    with pytest.raises(PromptTooLong):
        engine.add([1] * 31, ONE, pooling="mean")


def test_the_context_is_that_of_the_model(tmp_path: Path) -> None:
    encoder = read_encoder(saved(tiny("roberta"), tmp_path), dtype="float32")
    made_for = EmbeddingConfig(max_length=20)
    assert encoder_engine(encoder, EngineConfig(model=tmp_path), EmbeddingConfig()).max_model_len == 38  # from 2 on
    assert encoder_engine(encoder, EngineConfig(model=tmp_path), made_for).max_model_len == 20
    assert encoder_engine(encoder, EngineConfig(model=tmp_path, max_model_len=38), made_for).max_model_len == 38
    with pytest.raises(ValueError, match="38 tokens"):
        encoder_engine(encoder, EngineConfig(model=tmp_path, max_model_len=39), made_for)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"is_decoder": True}, "is_decoder"),
        ({"hidden_act": "mish"}, "mish"),
        ({"num_attention_heads": 5}, "multiple"),
        ({"hidden_size": 64}, r"is \[64, 32\]; the configuration requires"),
        ({"num_hidden_layers": 3}, r"encoder\.layer\.2"),
        ({"vocab_size": None}, "vocab_size"),
    ],
)
def test_unsupported_configurations_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = saved(tiny("bert"), tmp_path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UnsupportedModel, match=message):
        read_encoder(tmp_path, dtype="float32")


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    saved(tiny("bert"), tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidCheckpoint, match="damaged"):
        read_encoder(tmp_path)
    weights.unlink()
    with pytest.raises(UnsupportedModel, match=r"lacks model\.safetensors"):
        read_encoder(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InvalidCheckpoint, match="lacks hidden_size"):
        read_encoder(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "deberta"}')
    with pytest.raises(UnsupportedModel, match=r"deberta.*`kind: vllm`"):
        is_encoder(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert not is_encoder(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert not is_encoder(tmp_path)


FAMILIES: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "mpnet": {"pad_token_id": 1, "max_position_embeddings": 64},
    "nomic_bert": {"max_position_embeddings": 64},
    "gte": {"max_position_embeddings": 64},
    "gte-untyped": {"max_position_embeddings": 64, "type_vocab_size": 0},
    "modernbert": {"max_position_embeddings": 64, "local_attention": 8, "num_hidden_layers": 4},
    "deberta_v2": {  # as DeBERTa v3
        "relative_attention": True,
        "pos_att_type": "p2c|c2p",
        "position_buckets": 8,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
    },
    "deberta_v2-apart": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 2},
    "deberta_v2-keys": {"relative_attention": True, "pos_att_type": ["c2p"], "max_relative_positions": 9},
    "jina_embeddings_v3": {"pad_token_id": 1, "type_vocab_size": 1, "max_position_embeddings": 64},
    "electra": {"embedding_size": 16},
    "electra-as-wide": {"embedding_size": 32},
    "albert": {"embedding_size": 16, "num_hidden_groups": 2, "num_hidden_layers": 5},
    "gemma3_text": {
        "use_bidirectional_attention": True,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "sliding_window": 8,
        "query_pre_attn_scalar": 20,
        "num_hidden_layers": 7,
    },
    "t5": {"d_model": 32, "d_kv": 12, "d_ff": 48, "num_layers": 2, "num_heads": 4, "relative_attention_num_buckets": 8},
    "t5-gated": {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 4,
        "feed_forward_proj": "gated-gelu",
        "relative_attention_max_distance": 20,
    },
    "modernbert-biased": {"max_position_embeddings": 64, "attention_bias": True, "mlp_bias": True, "norm_bias": True},
}


@pytest.mark.parametrize("row", FAMILIES)
def test_every_family_of_encoders(tmp_path: Path, row: str) -> None:
    torch.manual_seed(0)
    ends = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
    family = row.partition("-")[0].replace("_v2", "-v2")
    config = AutoConfig.for_model(
        family, **((ends | {"vocab_size": 64} if family == "t5" else SHAPE | ends) | FAMILIES[row])
    )
    theirs = (T5EncoderModel(config) if family == "t5" else AutoModel.from_config(config)).eval()
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            weight.normal_(0, 0.4) if "bias" in name else weight.add_(0.4 * torch.randn_like(weight))
    folder = saved(theirs, tmp_path)
    assert is_encoder(folder)
    assert_same(read_encoder(folder, dtype="float32"), theirs, tolerance=2e-4)


def test_the_configuration_of_nomics_own_code(tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = AutoModel.from_config(AutoConfig.for_model("nomic_bert", **SHAPE, pad_token_id=0)).eval()
    saved(theirs, tmp_path)
    own = {
        "model_type": "nomic_bert", "vocab_size": 64, "n_embd": 32, "n_inner": 48, "n_layer": 2, "n_head": 4,
        "n_positions": 40, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "activation_function": "swiglu",
        "layer_norm_epsilon": 1e-12, "type_vocab_size": 2,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(own))
    assert_same(read_encoder(tmp_path, dtype="float32"), theirs)
    scaled = {"rotary_scaling_factor": 2, "max_trained_positions": 24}
    (tmp_path / "config.json").write_text(json.dumps(own | scaled))
    assert read_encoder(tmp_path, dtype="float32").config.context_length == 24


@pytest.mark.parametrize(
    ("family", "name", "value"),
    [
        ("nomic_bert", "activation_function", "geglu"),
        ("nomic_bert", "hidden_act", "gelu"),
        ("nomic_bert", "parallel_block", True),
        ("nomic_bert", "causal", True),
        ("gte", "logn_attention_scale", True),
    ],
)
def test_fields_that_change_the_vectors_are_refused(tmp_path: Path, family: str, name: str, value: Any) -> None:
    model = AutoModel.from_config(AutoConfig.for_model(family, **SHAPE, pad_token_id=0))
    file = saved(model, tmp_path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))
    with pytest.raises(UnsupportedModel, match=name):
        read_encoder(tmp_path, dtype="float32")


def test_the_configuration_as_embeddinggemma_is_published(tmp_path: Path) -> None:
    """With the base of positions at the top, and layers by their pattern."""
    torch.manual_seed(0)
    changes = SHAPE | FAMILIES["gemma3_text"]
    theirs = AutoModel.from_config(AutoConfig.for_model("gemma3_text", **changes)).eval()
    file = saved(theirs, tmp_path) / "config.json"
    raw = json.loads(file.read_text())
    for name in ("rope_parameters", "layer_types"):
        del raw[name]
    own = {"rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0, "rope_scaling": None}
    file.write_text(json.dumps(raw | own | {"_sliding_window_pattern": 6}))
    assert is_encoder(tmp_path)
    assert_same(read_encoder(tmp_path, dtype="float32"), theirs, tolerance=2e-4)
    file.write_text(json.dumps(raw | own | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}))
    with pytest.raises(UnsupportedModel, match="rope_scaling"):
        read_encoder(tmp_path, dtype="float32")
    file.write_text(json.dumps(raw | own | {"layer_types": ["full_attention"]}))
    with pytest.raises(UnsupportedModel, match="must name 7 layers"):
        read_encoder(tmp_path, dtype="float32")


def test_a_t5_that_answers_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}')
    with pytest.raises(UnsupportedModel, match="answers with a decoder"):
        is_encoder(tmp_path)
    (tmp_path / "modules.json").write_text("[]")
    assert is_encoder(tmp_path)


def test_an_unknown_mlp_of_t5_is_refused(tmp_path: Path) -> None:
    sizes = FAMILIES["t5"] | {"vocab_size": 64}
    file = saved(T5EncoderModel(AutoConfig.for_model("t5", **sizes)), tmp_path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"feed_forward_proj": "gated-mish"}))
    with pytest.raises(UnsupportedModel, match="gated-mish"):
        read_encoder(tmp_path, dtype="float32")


def test_a_layer_with_a_tensor_more_is_refused(tmp_path: Path) -> None:
    file = saved(tiny("bert"), tmp_path) / "model.safetensors"
    more = {"encoder.layer.0.attention.self.gate.weight": torch.ones(4)}
    save_file(load_file(file) | more, file)
    with pytest.raises(UnsupportedModel, match=r"attention\.self\.gate\.weight.*would be wrong.*`kind: vllm`"):
        read_encoder(tmp_path, dtype="float32")


@pytest.mark.parametrize("change", [{"inner_group_num": 2}, {"num_hidden_groups": 7}])
def test_an_albert_of_other_groups_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    file = saved(AutoModel.from_config(AutoConfig.for_model("albert", **SHAPE | FAMILIES["albert"])), tmp_path)
    (file / "config.json").write_text(json.dumps(json.loads((file / "config.json").read_text()) | change))
    with pytest.raises(UnsupportedModel, match="several layers in a group, or more groups"):
        read_encoder(tmp_path, dtype="float32")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"relative_attention": False}, "without relative_attention"),
        ({"conv_kernel_size": 3}, "conv_kernel_size"),
        ({"embedding_size": 16}, "embedding_size"),
        ({"pooler_hidden_size": 16}, "pooler_hidden_size"),
        ({"pos_att_type": ["c2p", "p2p"]}, "pos_att_type 'p2p'"),
    ],
)
def test_another_deberta_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = saved(AutoModel.from_config(AutoConfig.for_model("deberta-v2", **SHAPE | FAMILIES["deberta_v2"])), tmp_path)
    (file / "config.json").write_text(json.dumps(json.loads((file / "config.json").read_text()) | change))
    with pytest.raises(UnsupportedModel, match=message):
        read_encoder(tmp_path, dtype="float32")
