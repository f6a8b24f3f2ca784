"""Every way to store a model gives the numbers that transformers computes from it; anything else is refused."""

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

from runtimes.llm.engine.async_engine import Engine, EngineConfig
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.loader import DtypeName, choose_dtype, load_model, open_checkpoint
from tests.runtimes.llm.families import LLAMA3_ROPE, write_gguf
from tests.runtimes.llm.reference import (
    PROMPTS,
    TINY_KV_BYTES,
    assert_greedy,
    loaded_bytes,
    save_safetensors,
    tiny_llama,
)
from tests.support.cases import cases
from tests.support.llm_engines import answers


def answered(path: Path, dtype: DtypeName = "float32") -> list[list[int]]:
    """Greedy answers to PROMPTS, all in one batch."""
    return answers(Engine.load(EngineConfig(model=path, dtype=dtype, device="cpu", kv_cache_bytes=1 << 20)), PROMPTS)


def assert_equals_transformers(model: Any, path: Path) -> None:
    for prompt, answer in zip(PROMPTS, answered(path), strict=True):
        assert_greedy(model, prompt, answer)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": False},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1},
        {"head_dim": 16},
        {"rope_parameters": LLAMA3_ROPE},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    ],
    ids=["tied", "untied", "mha", "mqa", "wide-heads", "rope-llama3", "rope-linear", "rope-theta"],
)
def test_safetensors(tmp_path: Path, changes: dict[str, Any]) -> None:
    model = tiny_llama(**changes)
    assert_equals_transformers(model, save_safetensors(model, tmp_path))


def test_the_cases_above_can_fail(tmp_path: Path) -> None:
    """A model that differs in its scaling alone does not give these answers."""
    path = save_safetensors(tiny_llama(), tmp_path)
    with pytest.raises(AssertionError, match="which leads by"):
        assert_equals_transformers(tiny_llama(rope_parameters=LLAMA3_ROPE), path)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_short_floats_stay_near(tmp_path: Path, dtype: DtypeName) -> None:
    """The best logit leads the average by about 20; a rounded model picks within a fraction of one."""
    model = tiny_llama()
    for prompt, answer in zip(PROMPTS, answered(save_safetensors(model, tmp_path), dtype), strict=True):
        assert_greedy(model, prompt, answer, tolerance=0.5)


def test_shards(tmp_path: Path) -> None:
    model = tiny_llama()
    save_safetensors(model, tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert_equals_transformers(model, tmp_path)


def test_rope_scaling_as_it_was_written_before_transformers_5(tmp_path: Path) -> None:
    model = tiny_llama(rope_parameters=LLAMA3_ROPE)
    save_safetensors(model, tmp_path)
    edit_config(tmp_path, rope_parameters=None, rope_theta=10000.0, rope_scaling=without(LLAMA3_ROPE, "rope_theta"))
    assert_equals_transformers(model, tmp_path)


def test_end_tokens_come_from_both_configurations(tmp_path: Path) -> None:
    save_safetensors(tiny_llama(), tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [3, 95]}')
    assert open_checkpoint(tmp_path).config.eos_token_ids == {3, 95}


def test_gguf(tmp_path: Path) -> None:
    model = tiny_llama(tie_word_embeddings=False)
    path = write_gguf(tmp_path / "model.gguf", model)
    assert open_checkpoint(path).config.eos_token_ids == {95}
    assert_equals_transformers(model, path)


def test_gguf_with_rope_factors(tmp_path: Path) -> None:
    """llama.cpp stores Llama 3's scaling as the factors it comes to."""
    scaled = tiny_llama(rope_parameters=LLAMA3_ROPE)
    assert_equals_transformers(scaled, write_gguf(tmp_path / "model.gguf", scaled))


def test_gguf_quantised_weights_are_near(tmp_path: Path) -> None:
    model = tiny_llama(hidden_size=64, intermediate_size=64)
    path = write_gguf(tmp_path / "model.gguf", model, quantise=gguf.GGMLQuantizationType.Q8_0)
    checkpoint = open_checkpoint(path)
    for name, weight in model.state_dict().items():
        if name != "lm_head.weight":
            own = name.replace("post_attention", "pre_feedforward")
            torch.testing.assert_close(checkpoint.tensor(own), weight, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "MXFP4", "F16"])
def test_memory_is_counted_as_a_gguf_file_is_held(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_llama(hidden_size=64, intermediate_size=64)
    path = write_gguf(tmp_path / "model.gguf", model, quantise=gguf.GGMLQuantizationType[kind])
    required, held = loaded_bytes(path, monkeypatch)
    assert held * 0.95 < required < held * 1.15


# ---- refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    cases(__file__, "folders"),
)
def test_unsupported_settings_of_a_folder_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    save_safetensors(tiny_llama(), tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(UnsupportedModel, match=message):
        load_model(tmp_path, dtype="float32", device="cpu")


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_folder_that_lacks_a_file(tmp_path: Path, missing: str) -> None:
    save_safetensors(tiny_llama(), tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(UnsupportedModel, match=missing):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    cases(__file__, "gguf files"),
)
def test_unsupported_settings_of_a_gguf_file_are_refused(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    path = write_gguf(tmp_path / "model.gguf", tiny_llama(), fields=fields)
    with pytest.raises(UnsupportedModel, match=message):
        load_model(path, dtype="float32", device="cpu")


def test_an_unknown_quantisation_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", tiny_llama(), odd_tensor="blk.0.ffn_down.weight")
    with pytest.raises(UnsupportedModel, match=r"blk.0.ffn_down.weight has quantisation type I8"):
        load_model(path, dtype="float32", device="cpu")


def test_neither_file_nor_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        open_checkpoint(tmp_path / "nothing-here")
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(UnsupportedModel, match="neither"):
        open_checkpoint(tmp_path / "model.bin")


def test_a_device_that_is_not_there() -> None:
    if torch.cuda.is_available():
        assert choose_dtype("auto", torch.device("cuda")) == torch.bfloat16
        return
    with pytest.raises(ValueError, match="no CUDA device"):
        load_model(Path("x.gguf"), device="cuda")


def test_dtype_names() -> None:
    cpu = torch.device("cpu")
    assert choose_dtype("float16", cpu) == torch.float16
    fast = {"avx512_bf16", "amx_bf16"} & {name for name, has in torch.cpu.get_capabilities().items() if has}
    assert choose_dtype("auto", cpu) == (torch.bfloat16 if fast else torch.float32)


@pytest.mark.parametrize("processor", ["avx2", "avx512", "none"])
def test_automatic_dtype_serves_the_native_step(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The native step computes with bfloat16 only: on a processor that has AVX2 alone, float32 would exclude it."""
    abilities = {
        "avx2": {"avx2": True, "fma3": True},
        "avx512": {"avx2": True, "fma3": True, "avx512_bf16": True},
        "none": {"avx2": False},
    }
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: abilities[processor])
    cpu = torch.device("cpu")
    assert choose_dtype("auto", cpu, native=True) == (torch.float32 if processor == "none" else torch.bfloat16)
    assert choose_dtype("auto", cpu) == (torch.bfloat16 if processor == "avx512" else torch.float32)
    assert choose_dtype("float32", cpu, native=True) == torch.float32


# ---- an engine over a model


def load_engine(folder: Path, **bounds: Any) -> Engine:
    save_safetensors(tiny_llama(), folder)
    return Engine.load(EngineConfig(model=folder, dtype="float32", device="cpu", **bounds))


@pytest.mark.parametrize(("cache_tokens", "max_model_len"), [(4096, 256), (100, 96)])
def test_the_longest_answer_fits_both_model_and_cache(tmp_path: Path, cache_tokens: int, max_model_len: int) -> None:
    engine = load_engine(tmp_path, kv_cache_bytes=cache_tokens * TINY_KV_BYTES)
    assert engine.max_model_len == max_model_len
    assert engine.stats().kv_blocks_total == cache_tokens // 16


@pytest.mark.parametrize(
    ("bounds", "message"),
    cases(__file__, "bounds"),
)
def test_bounds_that_the_model_cannot_meet(tmp_path: Path, bounds: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_engine(tmp_path, **bounds)


def without(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))
