"""Every row of the table of families gives the numbers that transformers computes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from runtimes.llm.engine.async_engine import Engine, EngineConfig, SamplingParams
from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.memory import input_bytes_per_token, kv_bytes_per_token
from runtimes.llm.model.llama import Llama
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.model.tensor_names import Part, TensorPart
from runtimes.llm.sequence import Chunk
from runtimes.llm.weights.adapter_files import read_adapter
from runtimes.llm.weights.loader import load_model, open_checkpoint
from tests.runtimes.llm.family_others import tiny_searched, tiny_with_pictures
from tests.runtimes.llm.family_rows import CONTEXT, ROWS, WINDOW
from tests.runtimes.llm.family_table import GGUF, tiny, write_gguf
from tests.runtimes.llm.reference import assert_greedy, save_safetensors
from tests.support.llm_engines import answers

BLOCK = 16
PROMPT = [(7 * i + i * i // 5) % 250 for i in range(120)]
PROMPTS = [[5], PROMPT[:34], PROMPT, PROMPT[:100]]  # the last is in the prefix cache
CUTS = [1, 17, 48, 49, 110]


def logits(model: Llama, cuts: list[int], kv_dtype: torch.dtype | None = None) -> torch.Tensor:
    """After every token of PROMPT; computed in steps that end at `cuts`."""
    executor = TorchExecutor(model, CONTEXT // BLOCK, BLOCK, context_length=CONTEXT, kv_dtype=kv_dtype)
    params, pages = SamplingParams(max_tokens=1), tuple(reversed(range(CONTEXT // BLOCK)))
    parts = []
    for start, end in zip([0, *cuts], [*cuts, len(PROMPT)], strict=True):
        chunk = Chunk(0, start, tuple(PROMPT[start:end]), pages, True, params, 0)
        parts.append(executor.logits([chunk], range(end - start)))
    return torch.cat(parts)


def assert_same(path: Path, reference: Any) -> None:
    """The same logits in one step and in several, and the same answers from an engine."""
    model = load_model(path, dtype="float32", device="cpu")
    with torch.inference_mode():
        expected = reference(torch.tensor([PROMPT])).logits[0].log_softmax(-1)
    for cuts in ([], CUTS):
        torch.testing.assert_close(logits(model, cuts).log_softmax(-1), expected, atol=2e-4, rtol=0)
    bounds: dict[str, Any] = {"max_num_batched_tokens": 50, "max_num_seqs": 8, "kv_cache_bytes": 1 << 22}
    engine = Engine.load(EngineConfig(model=path, dtype="float32", device="cpu", **bounds))
    for prompts in (PROMPTS[:3], PROMPTS[3:]):
        for prompt, answer in zip(prompts, answers(engine, prompts, WINDOW + 2), strict=True):
            assert_greedy(reference, prompt, answer)


@pytest.mark.parametrize("row", ROWS)
def test_a_family_is_that_of_transformers(tmp_path: Path, row: str) -> None:
    model = tiny(row)
    assert_same(save_safetensors(model, tmp_path), model)


@pytest.mark.parametrize(
    "family", ["qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "mistral3", "idefics3", "smolvlm"]
)
def test_a_model_that_also_sees_is_served_for_its_text(tmp_path: Path, family: str) -> None:
    model = tiny_with_pictures(family)
    assert_same(save_safetensors(model, tmp_path), model)


OTHER_PARTS = [
    ("gemma3n", "gemma3n_text", "model.language_model."),
    ("gemma4", "gemma4_text", "model.language_model."),
    ("llama4", "llama4_text", "language_model.model."),
    ("mllama", "mllama_text_model", "language_model.model."),
    ("mllama", "mllama_text_model", "model.language_model."),
    ("mistral3", "mistral4", "language_model.model."),
]


@pytest.mark.parametrize(
    ("outer", "row", "prefix"), OTHER_PARTS, ids=[f"{outer}-{prefix}" for outer, _, prefix in OTHER_PARTS]
)
def test_the_text_part_of_a_file_with_other_parts_is_served(tmp_path: Path, outer: str, row: str, prefix: str) -> None:
    model = tiny(row)
    folder = save_safetensors(model, tmp_path)
    file, config = folder / "model.safetensors", json.loads((folder / "config.json").read_text())
    tensors = load_file(file)
    if prefix.startswith("language_model."):
        renamed = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
    else:
        renamed = {name.replace("model.", prefix, 1): tensor for name, tensor in tensors.items()}
    save_file(renamed | {"model.vision_tower.weight": torch.zeros(4)}, file)
    whole = {"model_type": outer, "text_config": config, "vision_config": {}}
    (folder / "config.json").write_text(json.dumps(whole))
    assert_same(folder, model)


def test_a_gemma_4_as_published_names_the_heads_of_its_global_layers(tmp_path: Path) -> None:
    model = tiny("gemma4_text-experts")
    folder = save_safetensors(model, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    del config["per_layer_config"]
    fields = {"global_head_dim": 32, "num_global_key_value_heads": 1, "use_bidirectional_attention": "vision"}
    (folder / "config.json").write_text(json.dumps(config | fields))
    assert_same(folder, model)


def test_the_base_of_phi_4_multimodal_as_published_is_served(tmp_path: Path) -> None:
    """Its own repository has matrices for pictures and sounds beside each of the base."""
    model = tiny("phi4_multimodal")
    folder = save_safetensors(model, tmp_path)
    file, config = folder / "model.safetensors", json.loads((folder / "config.json").read_text())
    ends = ("qkv_proj.weight", "o_proj.weight", "gate_up_proj.weight", "down_proj.weight")
    renamed = {
        name.replace(".weight", ".base_layer.weight") if name.endswith(ends) else name: tensor
        for name, tensor in load_file(file).items()
    }
    lora = {name.replace("base_layer", "lora_A.vision"): torch.ones(4, 4) for name in renamed if "base_layer" in name}
    save_file(renamed | lora, file)
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "phi4mm"}))
    assert_same(folder, model)


def test_layers_of_different_sizes_are_those_of_transformers(tmp_path: Path) -> None:
    """Made of a Llama's parts: transformers has no code of its own for the type."""
    model, config = tiny_searched()
    folder = save_safetensors(model, tmp_path)
    (folder / "config.json").write_text(json.dumps(config))
    assert_same(folder, model)
    loaded = load_model(folder, dtype="float32", device="cpu")
    assert loaded.config.cached_heads == [(2, 16), (1, 16), (4, 16)]
    assert kv_bytes_per_token(loaded.config, torch.float32) == loaded.kv_bytes_per_token == 4 * 2 * 7 * 16
    with pytest.raises(UnsupportedModel, match="adapters of models with heads of different sizes are not supported"):
        read_adapter(tmp_path, open_checkpoint(folder).adapter_base)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("attention", {"n_heads_in_group": 3}, "n_heads_in_group is 3, of 4 heads"),
        ("attention", {"n_heads_in_group": None}, "n_heads_in_group is None"),
        ("attention", {"window_length": 64}, "window_length of block_configs is not supported"),
        ("ffn", {"ffn_mult": None}, "ffn_mult of block_configs is None"),
        ("ffn", {"ffn_mult": 20}, r"mlp\.gate_proj\.weight is \[256, 64\]"),
        ("ffn", {"no_op": None, "sparsify": ["x"]}, "sparsify of block_configs is not supported"),
    ],
)
def test_a_block_that_cannot_be_is_refused(tmp_path: Path, part: str, change: dict[str, Any], message: str) -> None:
    model, config = tiny_searched()
    folder = save_safetensors(model, tmp_path)
    config["block_configs"][0][part] |= change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match=message):
        load_model(folder, dtype="float32", device="cpu")


def test_stacked_experts_are_read_in_both_orders(tmp_path: Path) -> None:
    """Published files have [experts, in, out], transformers 5 writes [experts, out, in]."""
    model = tiny_with_pictures("qwen3_vl_moe")
    folder = save_safetensors(model, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    turned = {
        name: tensor.transpose(1, 2).contiguous() if ".experts." in name else tensor for name, tensor in tensors.items()
    }
    save_file(turned, folder / "model.safetensors")
    assert_same(folder, model)


@pytest.mark.parametrize("part", ["whole", "first"])
def test_stacked_experts_that_are_squares_are_refused(tmp_path: Path, part: Part) -> None:
    """Their order cannot be told from their sizes, and a transposed matrix would answer wrongly."""
    shape = open_checkpoint(save_safetensors(tiny("qwen3_moe"), tmp_path)).config
    square = torch.zeros(shape.hidden_size, shape.hidden_size)
    with pytest.raises(UnsupportedModel, match="is a square"):
        TensorPart("experts.down_proj", part, stacked=True, either=True).of(square, shape)


@pytest.mark.parametrize("row", GGUF)
def test_a_gguf_file_is_the_same_model(tmp_path: Path, row: str) -> None:
    model = tiny(row)
    folder = save_safetensors(model, tmp_path)
    loaded = load_model(folder, dtype="float32", device="cpu")
    again = load_model(write_gguf(tmp_path / "model.gguf", folder, row, model), dtype="float32", device="cpu")
    torch.testing.assert_close(logits(again, CUTS), logits(loaded, CUTS), atol=2e-4, rtol=1e-4)


# ── contradictions: refused at load, with the tensor of the file ──────────────────────────────────────

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("qwen3_moe", {"num_local_experts": 7}, r"mlp\.gate\.weight is \[6, 64\]; the configuration requires \[7, 64\]"),
    ("qwen3_moe", {"moe_intermediate_size": 32}, r"experts\.0\.gate_proj\.weight is \[48, 64\]"),
    ("qwen3_moe", {"num_experts_per_tok": 7}, "number of experts of a token is 7"),
    ("qwen2_moe", {"shared_expert_intermediate_size": 48}, r"shared_expert\.gate_proj\.weight is \[80, 64\]"),
    ("granitemoe", {"num_local_experts": 7}, r"router\.layer\.weight is \[6, 64\]"),
    ("glm4_moe", {"n_group": 3}, "cannot be of 2 of 3 groups"),
    ("glm4_moe", {"first_k_dense_replace": 2}, r"layers\.1\.mlp\.gate_proj\.weight is not in"),
    ("lfm2", {"conv_L_cache": 4}, r"conv\.conv\.weight is \[64, 1, 3\]; the configuration requires \[64, 1, 4\]"),
    ("lfm2", {"layer_types": ["conv"] * 3}, "is not 4 times conv or full_attention"),
    ("lfm2", {"layer_types": ["conv"] * 4}, r"layers\.1\.conv\.in_proj\.weight is not in"),
    ("granitemoehybrid", {"layer_types": ["mamba"] * 3}, "is not 4 times linear_attention, full_attention"),
    ("granitemoehybrid", {"layer_types": ["mamba"] * 4}, "all recurrent"),
    ("granitemoehybrid", {"mamba_d_state": 16}, r"mamba\.in_proj\.weight is \[312, 64\]; the configuration requires"),
    (
        "granitemoehybrid",
        {"mamba_d_conv": 3},
        r"conv1d\.weight is \[176, 1, 4\]; the configuration requires \[176, 1, 3",
    ),
    ("granitemoehybrid", {"mamba_d_conv": 1}, "length of a convolution less one is 0"),
    ("granitemoehybrid", {"mamba_n_groups": 3}, "8 recurrent heads cannot be in 3 groups"),
    ("granitemoehybrid", {"mamba_d_head": 12}, "8 heads of it are not 128 numbers"),
    ("falcon_h1", {"mamba_proj_bias": True}, "mamba_proj_bias is not supported for falcon_h1"),
    ("falcon_h1", {"ssm_multipliers": [1.0]}, r"ssm_multipliers is \[1.0\]"),
    ("falcon_h1", {"ssm_out_multiplier": 0.0}, "multiplier of recurrent layers is 0.0"),
    ("nemotron_h", {"layers_block_type": None, "hybrid_override_pattern": "MX"}, "'MX', which is not letters of"),
    ("nemotron_h", {"layers_block_type": ["mamba", "conv"]}, "is not 2 times linear_attention, full_attention, mlp"),
    ("qwen3_next", {"linear_num_key_heads": 4}, "6 value heads cannot share 4 key heads evenly"),
    (
        "qwen3_next",
        {"linear_key_head_dim": 16},
        r"in_proj_qkvz\.weight is \[240, 64\]; the configuration requires \[256,",
    ),
    ("qwen3_next", {"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim less one is 0"),
    ("qwen3_next", {"layer_types": None, "full_attention_interval": 0}, "full_attention_interval is 0"),
    (
        "qwen3_next",
        {"num_attention_heads": 2},
        r"q_proj\.weight is \[256, 64\]; the configuration requires \[128, 64\]",
    ),
    ("gemma3n_text", {"num_kv_shared_layers": 6}, "num_kv_shared_layers is 6, of 6 layers"),
    ("gemma3n_text", {"num_kv_shared_layers": 3}, "the last 3 layers share keys of full_attention, which no layer"),
    ("gemma3n_text", {"altup_active_idx": 4}, "altup_active_idx is 4; there are 4 inputs"),
    ("gemma3n_text", {"activation_sparsity_pattern": [0.9]}, "activation_sparsity_pattern has not one share"),
    ("gemma3n_text", {"intermediate_size": [96]}, "intermediate_size has not one size for each of 6 layers"),
    ("gemma3n_text", {"laurel_rank": 16}, r"laurel\.linear_left\.weight is \[12, 64\]; the configuration requires"),
    ("deepseek_v32", {"index_topk": 0}, "index_topk is 0"),
    ("deepseek_v32", {"index_head_dim": 8}, "of fewer dimensions than are turned"),
    ("deepseek_v32", {"index_n_heads": 12}, r"indexer\.wq_b\.weight is \[576, 32\]; the configuration requires"),
    ("glm_moe_dsa", {"indexer_types": ["shared"] * 4}, "the first layer takes the selection of an indexer, and none"),
    ("glm_moe_dsa", {"indexer_types": ["full"]}, "indexer_types is .*, which is not 4 times full or shared"),
    ("gemma4_text", {"per_layer_config": {"1": {"attention": "x"}}}, "attention of per_layer_config is not supported"),
    ("gemma4_text", {"per_layer_config": {}}, r"layers\.1\.self_attn\.q_proj\.weight is \[96, 64\]"),
    ("gemma4_text", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention is not supported"),
    ("gemma4_text", {"use_double_wide_mlp": False}, r"mlp\.gate_proj\.weight is \[192, 64\]"),
    ("llama4_text", {"no_rope_layers": [1]}, "no_rope_layers has not one number for each of 5 layers"),
    ("llama4_text", {"attention_chunk_size": 0}, "layer_types 'chunked_attention' is not supported"),
    ("llama4_text", {"floor_scale": 0}, "length over which queries grow is 0"),
    ("llama4_text", {"moe_layers": [0]}, r"layers\.2\.feed_forward\.gate_proj\.weight is not in"),
    ("llama4_text", {"intermediate_size_mlp": 48}, r"feed_forward\.gate_proj\.weight is \[80, 64\]"),
    ("nemotron_h", {"moe_latent_size": 16}, r"experts\.0\.up_proj\.weight is \[48, 64\]; the configuration requires"),
    ("nemotron_h", {"moe_latent_size": 1.5}, "moe_latent_size is 1.5"),
    ("nemotron_h", {"moe_shared_expert_intermediate_size": 48}, r"shared_experts\.up_proj\.weight is \[40, 64\]"),
    ("granitemoehybrid", {"time_step_limit": [0, "wide"]}, "time_step_limit is .*, which is not two numbers"),
    (
        "deepseek_v3",
        {"kv_lora_rank": 32},
        r"kv_a_proj_with_mqa\.weight is \[56, 64\]; the configuration requires \[48,",
    ),
    ("deepseek_v3", {"v_head_dim": 24}, r"o_proj\.weight is \[64, 80\]"),
    ("deepseek_v3", {"q_lora_rank": None}, r"self_attn\.q_proj\.weight is not in"),
    ("deepseek_v3", {"qk_rope_head_dim": 15}, "qk_rope_head_dim is 15"),
    ("deepseek_v3", {"attention_bias": True}, "attention_bias is not supported for deepseek_v3"),
    ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method 'noaux_tc' is not supported"),
    *[(row, {"rope_parameters": None}, "lacks rope_parameters") for row in ("ministral3", "mistral4")],
    (
        "gpt_oss",
        {"intermediate_size": 48},
        r"gate_up_proj is \[96, 64\]; the configuration requires \[48, 64\]",
    ),
]


@pytest.mark.parametrize(
    ("row", "changes", "message"), WRONG, ids=[f"{one}-{next(iter(how))}" for one, how, _ in WRONG]
)
def test_a_contradiction_is_refused(tmp_path: Path, row: str, changes: dict[str, Any], message: str) -> None:
    folder = save_safetensors(tiny(row), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(UnsupportedModel, match=message):
        load_model(folder, dtype="float32", device="cpu")


@pytest.mark.parametrize(("row", "missing"), [("mixtral", "experts.5.w2"), ("qwen3_moe", "layers.1.mlp.experts.3.up")])
def test_a_missing_expert_is_refused(tmp_path: Path, row: str, missing: str) -> None:
    folder = save_safetensors(tiny(row), tmp_path)
    file = folder / "model.safetensors"
    save_file({name: tensor for name, tensor in load_file(file).items() if missing not in name}, file)
    with pytest.raises(UnsupportedModel, match=f"{missing}.* is not in the safetensors files"):
        load_model(folder, dtype="float32", device="cpu")


@pytest.mark.parametrize("row", ["ministral3", "mistral4"])
def test_queries_grow_by_rope_scaling_too(tmp_path: Path, row: str) -> None:
    model = tiny(row)
    folder = save_safetensors(model, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["rope_scaling"] = config.pop("rope_parameters")
    (folder / "config.json").write_text(json.dumps(config))
    assert_same(folder, model)


def test_kimi_k2_is_a_deepseek_v3(tmp_path: Path) -> None:
    model = tiny("deepseek_v3")
    folder = save_safetensors(model, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "kimi_k2"}))
    assert_same(folder, model)


@pytest.mark.parametrize("how", [{"weights": "int8"}, {"weights": "int4"}, {"kv": torch.int8}], ids=repr)
def test_latents_of_fewer_bits_stay_near(tmp_path: Path, how: dict[str, Any]) -> None:
    """Every matrix is quantized, and no choice of experts can change. A model without a feature is off by 1."""
    wide = {"kv_lora_rank": 64, "v_head_dim": 32, "intermediate_size": 96, "moe_intermediate_size": 64}
    reference = tiny("deepseek_v3", n_routed_experts=8, num_experts_per_tok=8, n_group=1, topk_group=1, **wide)
    folder, weights = save_safetensors(reference, tmp_path), how.get("weights", "auto")
    given = logits(load_model(folder, dtype="float32", device="cpu", weights=weights), CUTS, how.get("kv"))
    with torch.inference_mode():
        expected = reference(torch.tensor([PROMPT])).logits[0]
    error = (given - expected).abs().mean() / expected.std()
    assert 1e-5 < error < (0.5 if weights == "int4" else 0.05)


def test_a_cached_position_is_its_latent(tmp_path: Path) -> None:
    model = load_model(save_safetensors(tiny("deepseek_v3"), tmp_path), dtype="float32", device="cpu")
    cache = TorchExecutor(model, 4, BLOCK, context_length=CONTEXT).cache
    numbers = 2 * (40 + 16)  # layers, and of each the latent and the turned dimensions
    assert cache.keys is cache.values
    assert cache.keys.shape == (2, 4, BLOCK, 1, 40 + 16)
    assert kv_bytes_per_token(model.config, torch.float32) == model.kv_bytes_per_token == 4 * numbers


def test_a_cached_position_has_an_index_key_for_each_indexer(tmp_path: Path) -> None:
    model = load_model(save_safetensors(tiny("glm_moe_dsa"), tmp_path), dtype="float32", device="cpu")
    cache = TorchExecutor(model, 4, BLOCK, context_length=CONTEXT).cache
    assert cache.inputs is not None
    assert cache.inputs.shape == (3, 4, BLOCK, 24)  # the third of four layers takes the selection of the second
    assert input_bytes_per_token(model.config, torch.float32) == 4 * 3 * 24


def test_an_adapter_of_latent_attention_is_refused(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(save_safetensors(tiny("deepseek_v3"), tmp_path))
    with pytest.raises(UnsupportedModel, match="adapters of models with latent attention are not supported"):
        read_adapter(tmp_path, checkpoint.adapter_base)


def test_layers_that_share_keys_have_no_pages_of_their_own(tmp_path: Path) -> None:
    model = load_model(save_safetensors(tiny("gemma3n_text"), tmp_path), dtype="float32", device="cpu")
    cache = TorchExecutor(model, 4, BLOCK, context_length=CONTEXT).cache
    assert cache.keys.shape == (4, 4, BLOCK, 2, 16)  # of six layers two read another's
    assert kv_bytes_per_token(model.config, torch.float32) == model.kv_bytes_per_token == 4 * 2 * 4 * 2 * 16


def test_an_adapter_of_gated_attention_is_refused(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(save_safetensors(tiny("qwen3_5_text"), tmp_path))
    with pytest.raises(UnsupportedModel, match="adapters of models with gated attention are not supported"):
        read_adapter(tmp_path, checkpoint.adapter_base)


@pytest.mark.parametrize("row", ["gemma3n_text", "gemma4_text"])
def test_an_adapter_of_a_gemma_with_shared_keys_is_refused(tmp_path: Path, row: str) -> None:
    checkpoint = open_checkpoint(save_safetensors(tiny(row), tmp_path))
    with pytest.raises(UnsupportedModel, match="adapters of models whose layers share keys are not supported"):
        read_adapter(tmp_path, checkpoint.adapter_base)


def test_an_adapter_of_values_that_are_keys_is_refused(tmp_path: Path) -> None:
    changes = {"attention_k_eq_v": True, "num_global_key_value_heads": 2}
    checkpoint = open_checkpoint(save_safetensors(tiny("gemma4_text-alike", **changes), tmp_path))
    with pytest.raises(UnsupportedModel, match="adapters of models whose values are keys are not supported"):
        read_adapter(tmp_path, checkpoint.adapter_base)


@pytest.mark.parametrize("how", [{"weights": "int8"}, {"weights": "int4"}, {"kv": torch.int8}], ids=repr)
@pytest.mark.parametrize("row", ["granitemoehybrid-dense", "falcon_h1", "qwen3_5_text", "gemma3n_text"])
def test_layers_of_other_kinds_of_fewer_bits_stay_near(tmp_path: Path, row: str, how: dict[str, Any]) -> None:
    reference = tiny(row)
    folder, weights = save_safetensors(reference, tmp_path), how.get("weights", "auto")
    given = logits(load_model(folder, dtype="float32", device="cpu", weights=weights), CUTS, how.get("kv"))
    with torch.inference_mode():
        expected = reference(torch.tensor([PROMPT])).logits[0]
    error = (given - expected).abs().mean() / expected.std()
    assert 1e-5 < error < (0.5 if weights == "int4" else 0.05)


def test_experts_in_mxfp4_are_those_of_the_file(tmp_path: Path) -> None:
    """gpt-oss as it is published: rows of gates and ups by turns, in blocks of 32."""
    model = tiny("gpt_oss")
    folder = save_safetensors(model, tmp_path)
    file, table = folder / "model.safetensors", torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    tensors, generator = load_file(file), torch.Generator().manual_seed(0)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj")) and "experts" in name]:
        count, into, out = tensors[name].shape
        codes = torch.randint(16, (count, out, into // 32, 32), dtype=torch.uint8, generator=generator)
        numbers = torch.where(codes > 7, -1.0, 1.0) * table[(codes & 7).long()] * 2.0**-4
        dict(model.named_parameters())[name].data.copy_(numbers.flatten(2).transpose(1, 2))
        tensors[f"{name}_blocks"] = codes[..., ::2] | codes[..., 1::2] << 4
        tensors[f"{name}_scales"] = torch.full((count, out, into // 32), 127 - 4, dtype=torch.uint8)
        del tensors[name]
    save_file(tensors, file)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4"}
    (folder / "config.json").write_text(json.dumps(config))
    assert_same(folder, model)
