"""A GGUF file of a model with recurrent layers or latent attention gives the numbers that transformers computes."""

from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from runtimes.llm.engine.async_engine import Engine, EngineConfig
from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.sampling_params import SamplingParams
from runtimes.llm.sequence import Chunk
from runtimes.llm.weights.gguf_metadata import read_metadata
from runtimes.llm.weights.loader import load_model, open_checkpoint
from tests.runtimes.llm.family_table import tiny
from tests.runtimes.llm.gguf_hybrids import HYBRIDS, write_hybrid
from tests.runtimes.llm.reference import assert_greedy, save_safetensors
from tests.support.llm_engines import answers

PROMPT = [(7 * i + i * i // 5) % 250 for i in range(120)]


def log_probabilities(path: Path, weights: str = "auto") -> Tensor:
    """After every token of PROMPT, in two steps."""
    model = load_model(path, dtype="float32", device="cpu", weights=weights)  # type: ignore[arg-type]
    executor = TorchExecutor(model, 8, 16)
    params, parts = SamplingParams(max_tokens=1), []
    for start, end in ((0, 49), (49, 120)):
        chunk = Chunk(0, start, tuple(PROMPT[start:end]), tuple(range(8)), True, params, 0)
        parts.append(executor.logits([chunk], range(end - start)))
    return torch.cat(parts).log_softmax(-1)


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_gguf_file_is_the_model_of_transformers(tmp_path: Path, name: str) -> None:
    row, changes = HYBRIDS[name]
    model = tiny(row, **changes)
    folder = save_safetensors(model, tmp_path / "folder")
    path = write_hybrid(tmp_path / "model.gguf", folder, name, model.config)
    with torch.inference_mode():
        expected = model(torch.tensor([PROMPT])).logits[0].log_softmax(-1)
    torch.testing.assert_close(log_probabilities(path), expected, atol=2e-4, rtol=0)


@pytest.mark.parametrize("name", HYBRIDS)
def test_quantised_tensors_stay_near(tmp_path: Path, name: str) -> None:
    row, changes = HYBRIDS[name]
    model = tiny(row, **changes)
    folder = save_safetensors(model, tmp_path / "folder")
    path = write_hybrid(tmp_path / "model.gguf", folder, name, model.config, gguf.GGMLQuantizationType.Q8_0)
    assert any(codes for _, codes in open_checkpoint(path).stored_shapes)
    with torch.inference_mode():
        expected = model(torch.tensor([PROMPT])).logits[0].log_softmax(-1)
    stored = log_probabilities(path, "stored")
    # A token whose experts are nearly tied may have others. Another model would be off by more than 1.
    assert float((stored - expected).abs().mean()) < 0.3


def test_weights_of_a_softmax_are_normalized_where_the_file_has_it(tmp_path: Path) -> None:
    """transformers has no such model, and llama.cpp computes it."""
    row, changes = HYBRIDS["deepseek_v2-lite"]
    model = tiny(row, **changes)
    folder = save_safetensors(model, tmp_path / "folder")
    for normalized in (False, True):
        fields: dict[str, int] = {"norm_topk_prob": normalized}
        path = write_hybrid(tmp_path / "m.gguf", folder, "deepseek_v2-lite", model.config, fields=fields)
        experts = open_checkpoint(path).config.experts
        assert experts is not None
        assert (experts.scoring, experts.normalized) == ("softmax", normalized)


@pytest.mark.parametrize("name", ["granitemoehybrid", "nemotron_h", "qwen3_5_moe", "deepseek_v3"])
def test_an_engine_answers_from_a_gguf_file(tmp_path: Path, name: str) -> None:
    """All prompts in one batch, in chunks, with states and pages of its own."""
    row, changes = HYBRIDS[name]
    model = tiny(row, **changes)
    folder = save_safetensors(model, tmp_path / "folder")
    path = write_hybrid(tmp_path / "model.gguf", folder, name, model.config)
    bounds: dict[str, Any] = {"max_num_batched_tokens": 50, "max_num_seqs": 8, "kv_cache_bytes": 1 << 22}
    engine = Engine.load(EngineConfig(model=path, dtype="float32", device="cpu", **bounds))
    prompts = [[5], PROMPT[:34], PROMPT]
    for prompt, answer in zip(prompts, answers(engine, prompts, 12), strict=True):
        assert_greedy(model, prompt, answer)


WRONG = [
    ("granitemoehybrid", {"mamba_d_state": 16}, r"blk\.0\.ssm_in\.weight is \[312, 64\]; .* requires \[328, 64\]"),
    ("granitemoehybrid", {"mamba_d_conv": 3}, r"ssm_conv1d\.weight is \[176, 1, 4\]; .* requires \[176, 1, 3\]"),
    ("granitemoehybrid", {"mamba_n_heads": 6}, "6 heads of it are not 128 numbers"),
    ("falcon_h1", {"mamba_n_heads": 0}, "mamba_n_heads is 0"),
    ("nemotron_h", {"mamba_num_heads": 6}, r"blk\.0\.ssm_dt\.bias is \[8\]; .* requires \[6\]"),
    ("nemotron_h", {"mamba_num_heads": 7}, "7 recurrent heads cannot be in 2 groups"),
    ("nemotron_h", {"conv_kernel": 1}, "length of a convolution less one is 0"),
    ("qwen3_next", {"linear_conv_kernel_dim": 3}, r"ssm_conv1d\.weight is \[144, 1, 4\]; .* requires \[144, 1, 3\]"),
    ("qwen3_next", {"num_experts": 5}, r"ffn_gate_inp\.weight is \[6, 64\]; .* requires \[5, 64\]"),
    ("deepseek_v3", {"kv_lora_rank": 32}, r"attn_kv_a_mqa\.weight is \[56, 64\]; .* requires \[48, 64\]"),
    ("deepseek_v3", {"num_attention_heads": 2}, r"attn_output\.weight is \[64, 80\]; .* requires \[64, 40\]"),
    ("deepseek_v3", {"qk_rope_head_dim": 15}, "qk_rope_head_dim is 15: pairs of it turn"),
]


@pytest.mark.parametrize(("name", "changes", "message"), WRONG)
def test_fields_that_contradict_the_tensors_are_refused(
    tmp_path: Path, name: str, changes: dict[str, int], message: str
) -> None:
    row, of_row = HYBRIDS[name]
    model = tiny(row, **of_row)
    folder = save_safetensors(model, tmp_path / "folder")
    path = write_hybrid(tmp_path / "model.gguf", folder, name, model.config, fields=changes)
    with pytest.raises(UnsupportedModel, match=message):
        load_model(path, dtype="float32", device="cpu")


@pytest.mark.parametrize("name", ["granitemoehybrid", "deepseek_v3", "qwen3_next"])
def test_files_that_lack_a_field_are_refused(tmp_path: Path, name: str) -> None:
    row, changes = HYBRIDS[name]
    model = tiny(row, **changes)
    folder = save_safetensors(model, tmp_path / "folder")
    whole = write_hybrid(tmp_path / "model.gguf", folder, name, model.config)
    metadata = read_metadata(whole)
    own = [key for key in metadata if ".ssm." in key or "lora_rank" in key]
    assert own
    for key in own:
        path = tmp_path / "part.gguf"
        path.write_bytes(whole.read_bytes().replace(key.encode(), key[:-1].encode() + b"_"))
        with pytest.raises(UnsupportedModel, match=r"lacks|is \[.*\]; the configuration requires"):
            load_model(path, dtype="float32", device="cpu")


def test_a_decay_above_0_is_refused(tmp_path: Path) -> None:
    """A is below 0, or its logarithm would not be a number."""
    row, changes = HYBRIDS["falcon_h1"]
    model = tiny(row, **changes)
    folder = save_safetensors(model, tmp_path / "folder")
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mamba.A_log"
    tensors[name] = torch.full_like(tensors[name], -torch.inf)
    save_file(tensors, folder / "model.safetensors")
    path = write_hybrid(tmp_path / "model.gguf", folder, "falcon_h1", model.config)
    with pytest.raises(UnsupportedModel, match=r"blk\.1\.ssm_a has numbers that are not finite"):
        load_model(path, dtype="float32", device="cpu")
