"""A config.json that leaves fields out, or has them in an older place, is read as transformers reads it.

End tokens are the exception: an absent one is that of the tokenizer, not the default of the family's class."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig

from runtimes.llm.model.hugging_face import hugging_face_config
from runtimes.llm.model.model_config import ModelShape, UnsupportedModel
from tests.runtimes.llm.families import FAMILIES, SHAPE

OPTIONAL = (
    "max_position_embeddings", "num_key_value_heads", "rms_norm_eps", "head_dim", "tie_word_embeddings", "hidden_act",
    "hidden_activation", "sliding_window", "layer_types", "use_sliding_window", "max_window_layers", "attention_bias",
    "mlp_bias", "rope_parameters", "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping",
    "original_max_position_embeddings", "partial_rotary_factor", "architectures",
)  # fmt: skip
ROPES: tuple[dict[str, Any], ...] = (
    {},
    {"rope_theta": 5e5},
    {"rope_theta": 5e5, "rope_scaling": None},
    {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
    {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "rope_scaling": {"type": "linear", "factor": 4.0}},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "phi3-longrope"])
@settings(max_examples=60)
@given(data=st.data())
def test_fields_that_are_left_out(family: str, data: st.DataObject) -> None:
    config_class: Any
    config_class, of_family = FAMILIES[family]
    raw = config_class(**(SHAPE | of_family)).to_dict()
    for name in data.draw(st.lists(st.sampled_from(OPTIONAL), max_size=6)):
        raw.pop(name, None)
    # Gemma 3 has parameters of two kinds of layers, and Phi-3 refuses other scalings than its own.
    if not family.startswith(("gemma3", "phi3")) and data.draw(st.booleans()):
        raw.pop("rope_parameters", None)
        raw |= data.draw(st.sampled_from(ROPES))
    whole = config_class.from_dict(copy.deepcopy(raw)).to_dict()
    assert _read(raw) == _read(whole)


@pytest.mark.parametrize(
    ("family", "given"),
    [
        ("gemma", {"hidden_act": "gelu"}),
        ("gemma", {"hidden_act": "gelu", "hidden_activation": None}),
        ("glm", {}),
        ("glm4", {}),
    ],
)
def test_fields_of_a_family_alone(family: str, given: dict[str, Any]) -> None:
    """Gemma's first files name GELU where its approximation is meant; GLM's queries have biases by default."""
    whole = AutoConfig.for_model(family, **SHAPE, **given).to_dict()
    raw = {name: value for name, value in whole.items() if name not in ("hidden_act", "attention_bias")} | given
    assert _read(raw) == _read(whole)


def _read(raw: dict[str, Any]) -> ModelShape | str:
    """The shape, or the reason for which there is none."""
    try:
        return hugging_face_config(raw)
    except UnsupportedModel as error:
        return str(error)
