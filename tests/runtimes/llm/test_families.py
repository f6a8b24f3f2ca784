"""Every family of models gives the numbers that transformers computes, however it is stored and cut into steps."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from runtimes.llm.engine.async_engine import Engine, EngineConfig, SamplingParams
from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.model.llama import Llama
from runtimes.llm.model.model_config import LayerKind, ModelShape
from runtimes.llm.sequence import Chunk
from runtimes.llm.weights.loader import load_model, open_checkpoint
from tests.runtimes.llm.families import CONTEXT, FAMILIES, WINDOW, tiny, write_gguf
from tests.runtimes.llm.reference import assert_greedy, save_safetensors
from tests.support.llm_engines import answers

PROMPT = [(7 * i + i * i // 5) % 250 for i in range(150)]
PROMPTS = [[5], [7, 3, 9], PROMPT[10:44], PROMPT]
BLOCK = 16
WEIGHTS = "model.safetensors"
NEAR = {"atol": 2e-4, "rtol": 1e-4}
# Up to its first context Phi-3's long version computes otherwise: see the tests of its own.
PLAIN = [family for family in FAMILIES if family != "phi3-longrope"]
GGUF = [family for family in FAMILIES if family != "qwen2-window" and family != "mistral"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A family's model of transformers and the folder it is saved in, made once."""
    made: dict[str, tuple[Any, Path]] = {}

    def of(family: str) -> tuple[Any, Path]:
        if family not in made:
            model = tiny(family)
            made[family] = (model, save_safetensors(model, tmp_path_factory.mktemp(family)))
        return made[family]

    return of


def load(path: Path) -> Llama:
    return load_model(path, dtype="float32", device="cpu")


def logits(model: Llama, tokens: Sequence[int], cuts: Sequence[int] = (), context: int = CONTEXT) -> Tensor:
    """After every token; computed in one step, or in several that end at `cuts`."""
    executor = TorchExecutor(model, CONTEXT // BLOCK, BLOCK, context_length=context)
    params, pages = SamplingParams(max_tokens=1), tuple(reversed(range(CONTEXT // BLOCK)))
    parts = []
    for start, end in zip([0, *cuts], [*cuts, len(tokens)], strict=True):
        chunk = Chunk(0, start, tuple(tokens[start:end]), pages, True, params, 0)
        parts.append(executor.logits([chunk], range(end - start)))
    return torch.cat(parts)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def theirs(model: Any, tokens: Sequence[int]) -> Tensor:
    result: Tensor = model(torch.tensor([list(tokens)])).logits[0]
    return result


@pytest.mark.parametrize("family", PLAIN)
def test_logits_are_those_of_transformers(stored: Any, family: str) -> None:
    model, folder = stored(family)
    for tokens in PROMPTS:
        torch.testing.assert_close(logits(load(folder), tokens), theirs(model, tokens), **NEAR)


@pytest.mark.parametrize("family", PLAIN)
def test_answers_are_those_of_transformers(stored: Any, family: str) -> None:
    """All in one batch, the prompts in chunks, beyond the window while they are generated."""
    model, folder = stored(family)
    bounds: dict[str, Any] = {"max_num_batched_tokens": 50, "max_num_seqs": 8, "kv_cache_bytes": 1 << 22}
    engine = Engine.load(EngineConfig(model=folder, dtype="float32", device="cpu", **bounds))
    for prompt, answer in zip(PROMPTS, answers(engine, PROMPTS, WINDOW + 8), strict=True):
        assert_greedy(model, prompt, answer)


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_change_nothing(stored: Any, family: str) -> None:
    """Cuts at a page's border or within a page, chunks of one token, and chunks beyond the window give equal logits."""
    model = load(stored(family)[1])
    cuts = [1, 2, 16, 17, 48, 49, 50, 63, 64, 65, 110, *range(120, 150)]
    torch.testing.assert_close(logits(model, PROMPT, cuts), logits(model, PROMPT), **NEAR)


@pytest.mark.parametrize("family", GGUF)
def test_a_gguf_file_is_the_same_model(stored: Any, tmp_path: Path, family: str) -> None:
    model, folder = stored(family)
    path = write_gguf(tmp_path / "model.gguf", model)
    _assert_same(open_checkpoint(path).config, open_checkpoint(folder).config)
    torch.testing.assert_close(logits(load(path), PROMPT), logits(load(folder), PROMPT), **NEAR)


def test_a_gguf_file_of_a_mistral_without_a_window_is_a_llama(tmp_path: Path) -> None:
    model = tiny("mistral", sliding_window=None)
    path = write_gguf(tmp_path / "model.gguf", model)
    torch.testing.assert_close(logits(load(path), PROMPT), theirs(model, PROMPT), **NEAR)


@pytest.mark.parametrize("family", ["llama-biased", "qwen2", "gemma2", "gemma3", "phi3"])
@pytest.mark.parametrize("how", [{"dtype": "bfloat16"}, {"dtype": "float32", "weights": "int8"}], ids=["bf16", "int8"])
def test_fewer_bits_stay_near(stored: Any, family: str, how: dict[str, Any]) -> None:
    """Logits are spread by about 1.3; those of a model that lacks a feature are elsewhere by more than that."""
    model, folder = stored(family)
    difference = (logits(load_model(folder, device="cpu", **how), PROMPT) - theirs(model, PROMPT)).abs().max()
    assert difference < 0.5


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_a_gemma_that_also_sees_is_served_for_its_text(stored: Any, tmp_path: Path, prefix: str) -> None:
    model, folder = stored("gemma3")
    tensors = {name.replace("model.", prefix, 1): tensor for name, tensor in load_file(folder / WEIGHTS).items()}
    save_file(tensors | {"vision_tower.weight": torch.zeros(4)}, tmp_path / WEIGHTS)
    text = json.loads((folder / "config.json").read_text())
    whole = {"model_type": "gemma3", "text_config": text, "vision_config": {}, "eos_token_id": [1, 106]}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    torch.testing.assert_close(logits(load(tmp_path), PROMPT), theirs(model, PROMPT), **NEAR)


def _assert_same(ours: ModelShape, theirs_shape: ModelShape) -> None:
    """The shapes are equal, except the last bits of numbers that GGUF stores in float32."""
    for name in (field.name for field in dataclasses.fields(ModelShape)):
        if name not in ("kinds", "rms_norm_eps"):
            assert getattr(ours, name) == getattr(theirs_shape, name), name
    assert ours.rms_norm_eps == pytest.approx(theirs_shape.rms_norm_eps)
    for one, other in zip(ours.kinds, theirs_shape.kinds, strict=True):
        assert one.window == other.window
        assert one.rope is not None
        assert other.rope is not None
        assert one.rope.frequencies == pytest.approx(other.rope.frequencies, rel=1e-5)
        assert one.rope.long_frequencies == pytest.approx(other.rope.long_frequencies, rel=1e-5)
        assert one.rope.attention_factor == pytest.approx(other.rope.attention_factor, rel=1e-5)
        assert one.rope.short_context == other.rope.short_context


# ── LongRoPE: the context decides which of its two lists of factors is taken ──────────────────────────


def test_a_short_context_takes_the_short_factors(stored: Any) -> None:
    model, folder = stored("phi3-longrope")
    for tokens in ([5], PROMPT[:64]):
        torch.testing.assert_close(logits(load(folder), tokens, context=64), theirs(model, tokens), **NEAR)


def test_a_long_context_takes_the_long_factors(stored: Any) -> None:
    model, folder = stored("phi3-longrope")
    for tokens in (PROMPT[:65], PROMPT):
        torch.testing.assert_close(
            logits(load(folder), tokens, context=65 + len(tokens)), theirs(model, tokens), **NEAR
        )


@pytest.mark.parametrize(("max_model_len", "prompt"), [(64, PROMPT[:40]), (200, PROMPT)])
def test_an_engines_context_is_the_length_that_it_serves(stored: Any, max_model_len: int, prompt: list[int]) -> None:
    model, folder = stored("phi3-longrope")
    engine = Engine.load(
        EngineConfig(model=folder, dtype="float32", device="cpu", max_model_len=max_model_len, kv_cache_bytes=1 << 20)
    )
    [answer] = answers(engine, [prompt], 20)
    assert_greedy(model, prompt, answer)


# ── the tests above can fail ──────────────────────────────────────────────────────────────────────────

DIFFERENCES: list[tuple[str, dict[str, Any]]] = [
    ("mistral", {"window": None}),
    ("mistral", {"window": WINDOW - 1}),
    ("mistral", {"window": WINDOW + 1}),
    ("qwen2-window", {"layer_kinds": (0, 0)}),
    ("qwen2-window", {"layer_kinds": (1, 1)}),
    ("qwen2", {"qkv_bias": False}),
    ("llama-biased", {"attention_out_bias": False}),
    ("llama-biased", {"mlp_bias": False}),
    ("qwen3", {"qk_norm": None}),
    ("gemma2", {"attention_soft_cap": None}),
    ("gemma2", {"logits_soft_cap": None}),
    ("gemma2", {"activation": "silu"}),
    ("gemma2", {"embedding_multiplier": 1.0}),
    ("gemma2", {"attention_scale": 0.25}),
    ("gemma2", {"layer_kinds": (1, 0)}),
    ("gemma3", {"qk_norm": None}),
    ("gemma3", {"layer_kinds": (0, 0, 0, 0, 0, 0, 0)}),
    ("gemma3", {"layer_kinds": (0, 0, 0, 0, 1, 0, 0)}),
    ("phi3", {"window": None}),
]


@pytest.mark.parametrize(
    ("family", "change"), DIFFERENCES, ids=[f"{one}-{next(iter(how))}" for one, how in DIFFERENCES]
)
def test_each_feature_is_seen(stored: Any, family: str, change: dict[str, Any]) -> None:
    """A model that lacks one thing, or has it elsewhere, computes other numbers than transformers."""
    reference, folder = stored(family)
    checkpoint = open_checkpoint(folder)
    if "window" in change:
        kinds = tuple(LayerKind(kind.rope, change["window"]) for kind in checkpoint.config.kinds)
        change = {"kinds": kinds}
    other = Llama(dataclasses.replace(checkpoint.config, **change), lambda name, shape: checkpoint.tensor(name))
    difference = (logits(other, PROMPT) - theirs(reference, PROMPT)).abs().max()
    assert difference > 100 * NEAR["atol"]
