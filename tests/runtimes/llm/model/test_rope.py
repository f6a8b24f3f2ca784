"""Rotary positions: every scaling turns as transformers' own functions do."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from runtimes.llm.model.hugging_face import hugging_face_config
from runtimes.llm.model.model_config import Rope, UnsupportedModel
from runtimes.llm.model.rope import rope_of, rotary_tables, rotated

SHAPE = {
    "model_type": "llama", "vocab_size": 96, "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 2, "max_position_embeddings": 4096,
}  # fmt: skip
FACTORS = [1.0 + 0.25 * pair for pair in range(32)]
SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 3.0},
    {"rope_type": "dynamic", "factor": 3.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 1024},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 256, "mscale": 1.0,
     "mscale_all_dim": 0.7},
    {"rope_type": "yarn", "factor": 8.0, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False},
    {"rope_type": "yarn", "factor": 8.0, "attention_factor": 0.9},
    {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 1024, "long_factor": FACTORS,
     "short_factor": FACTORS[::-1]},
    {"rope_type": "longrope", "original_max_position_embeddings": 1024, "long_factor": FACTORS,
     "short_factor": FACTORS, "attention_factor": 1.3},
]  # fmt: skip


def ours(scaling: dict[str, Any]) -> Rope:
    (kind,) = hugging_face_config(SHAPE | {"rope_parameters": {"rope_theta": 10000.0} | scaling}).kinds
    assert kind.rope is not None
    return kind.rope


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling["rope_type"])
def test_scalings_are_those_of_transformers(scaling: dict[str, Any]) -> None:
    config = LlamaConfig(**(SHAPE | {"rope_parameters": {"rope_theta": 10000.0} | scaling}))
    rope = ours(scaling)
    contexts = (1024, 1025) if scaling["rope_type"] == "longrope" else (4096,)
    for context in contexts:
        frequencies, attention_factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, "cpu", seq_len=context)
        torch.testing.assert_close(torch.tensor(rope.frequencies_for(context)), frequencies, atol=0, rtol=3e-7)
        assert rope.attention_factor == pytest.approx(attention_factor)


def test_yarn_reaches_as_far_as_it_stretches() -> None:
    """Its max_position_embeddings are those before the scaling, unless they are more."""
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 4096}
    assert hugging_face_config(SHAPE | {"rope_parameters": yarn}).context_length == 16384
    assert hugging_face_config(SHAPE | {"rope_scaling": yarn, "max_position_embeddings": 32768}).context_length == 32768


def test_names_of_the_first_phi_3() -> None:
    shape = SHAPE | {"model_type": "phi3", "original_max_position_embeddings": 1024}
    written = {"long_factor": FACTORS, "short_factor": FACTORS[::-1]}
    expected = hugging_face_config(shape | {"rope_scaling": written | {"type": "longrope"}})
    for name in ("su", "yarn"):
        assert hugging_face_config(shape | {"rope_scaling": written | {"type": name}}) == expected


def test_factors_that_are_too_few() -> None:
    scaling = {"rope_type": "longrope", "rope_theta": 1e4, "long_factor": [1.0], "short_factor": [1.0]}
    with pytest.raises(UnsupportedModel, match="needs 32 factors; it has 1 and 1"):
        ours(scaling)


@given(position=st.integers(0, 200), distance=st.integers(0, 50), seed=st.integers(0, 2**31))
@settings(deadline=None, max_examples=40)
def test_a_score_depends_on_the_distance_alone(position: int, distance: int, seed: int) -> None:
    """Dimensions beyond the rotated ones are unchanged."""
    rope = rope_of({"rope_theta": 10000.0, "partial_rotary_factor": 0.5}, 16, 256)
    cos, sin = rotary_tables(rope, 256, torch.device("cpu"))
    query, key = torch.randn(2, 1, 1, 16, generator=torch.Generator().manual_seed(seed))

    def score(at: int) -> torch.Tensor:
        return (rotated(query, cos[at + distance], sin[at + distance]) * rotated(key, cos[at], sin[at])).sum()

    torch.testing.assert_close(score(position), score(0), atol=1e-4, rtol=1e-4)
    assert torch.equal(rotated(query, cos[position], sin[position])[..., 8:], query[..., 8:])
