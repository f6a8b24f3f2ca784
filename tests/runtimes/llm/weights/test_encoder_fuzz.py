"""Encoders whose files are odd in one place are loaded, or refused with a reason."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModel, T5EncoderModel

from runtimes.llm.engine.encoder_loader import read_encoder
from runtimes.llm.model.embedding_config import embedding_config
from runtimes.llm.weights.dense_files import load_dense
from runtimes.llm.weights.encoder_files import is_encoder
from tests.support.embedders import with_modules

SHAPE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 40, "pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "gte": {"rope_scaling": None},
    "modernbert": {"local_attention": 8},
    "jina_embeddings_v3": {"type_vocab_size": 1},
    "albert": {"embedding_size": 16},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    "gemma3_text": {
        "use_bidirectional_attention": True, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8,
    },
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
}  # fmt: skip
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 100) | st.floats(-1, 1) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a dense layer. Its configuration is kept beside it."""
    torch.manual_seed(0)
    changes = FAMILIES[request.param]
    shape = {"vocab_size": 64} if request.param == "t5" else SHAPE
    config = AutoConfig.for_model(request.param, **shape | changes)
    model = T5EncoderModel(config) if request.param == "t5" else AutoModel.from_config(config)
    path: Path = tmp_path_factory.mktemp("encoder")
    model.save_pretrained(path)
    return with_modules(path, dense=[(32, 8, True, "Tanh")])


def read(folder: Path) -> None:
    if is_encoder(folder):
        read_encoder(folder, dtype="float32")
    load_dense(folder, embedding_config(folder, encoder=True))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_odd_field_is_read_or_refused(folder: Path, data: st.DataObject) -> None:
    names = ("config.json", "modules.json", "1_Pooling/config.json", "2_Dense/config.json")
    file = folder / data.draw(st.sampled_from(names))
    whole = file.read_text()
    content = json.loads(whole)
    place = data.draw(
        st.sampled_from(sorted(content)) if isinstance(content, dict) else st.sampled_from(range(len(content)))
    )
    content[place] = data.draw(ODD)
    file.write_text(json.dumps(content))
    try:
        with contextlib.suppress(ValueError, OSError):  # whose messages the process prints
            read(folder)
    finally:
        file.write_text(whole)


@pytest.mark.parametrize("prompts", [{"default_prompt_name": "q"}, {"default_prompt_name": "q", "prompts": ["q"]}])
def test_a_prompt_that_is_missing_is_refused(tmp_path: Path, prompts: dict[str, Any]) -> None:
    with_modules(tmp_path)
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    with pytest.raises(ValueError, match=r"config_sentence_transformers\.json has no prompt 'q'"):
        embedding_config(tmp_path, encoder=True)
