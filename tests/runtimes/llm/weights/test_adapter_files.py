"""An adapter that does not fit its model, or is computed in another way, is refused by the file and the tensor."""

import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from runtimes.llm.model.families import FAMILIES
from runtimes.llm.model.lora import LowRankAdapter
from runtimes.llm.model.model_config import ExpertShape
from runtimes.llm.weights.adapter_files import AdapterBase, read_adapter
from tests.runtimes.llm.native.models import shape

BASE = AdapterBase(shape(), FAMILIES["llama"])
MIXTURE = AdapterBase(shape(experts=ExpertShape(count=4, chosen=2, intermediate_size=32)), FAMILIES["qwen2_moe"])
CONFIG: dict[str, Any] = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"]}
LAYER = "base_model.model.model.layers.1"
PAIR = {f"{LAYER}.self_attn.q_proj.lora_A.weight": (4, 64), f"{LAYER}.self_attn.q_proj.lora_B.weight": (192, 4)}


def pair(module: str, down: tuple[int, ...] = (4, 64), up: tuple[int, ...] = (64, 4)) -> dict[str, tuple[int, ...]]:
    return {f"base_model.model.{module}.lora_A.weight": down, f"base_model.model.{module}.lora_B.weight": up}


def folder_of(
    folder: Path, config: Mapping[str, Any] = CONFIG, shapes: Mapping[str, tuple[int, ...]] = PAIR, **tensors: Tensor
) -> Path:
    (folder / "adapter_config.json").write_text(json.dumps(config))
    made = {name: torch.full(size, 0.5) for name, size in shapes.items()}
    save_file(made | tensors, folder / "adapter_model.safetensors")
    return folder


def read(folder: Path, base: AdapterBase = BASE) -> LowRankAdapter:
    return read_adapter(folder, base)


def test_a_pair_is_put_where_the_model_has_its_matrix(tmp_path: Path) -> None:
    adapter = read(folder_of(tmp_path))
    assert [list(layer) for layer in adapter.layers] == [[], ["qkv"]]
    (one,) = adapter.layers[1]["qkv"]
    assert (one.first, one.down.shape, one.up.shape, one.up.unique().tolist()) == (0, (4, 64), (192, 4), [1.0])


def test_equal_numbers_have_equal_digests(tmp_path: Path) -> None:
    digests = []
    for name, config in (
        ("a", CONFIG),
        ("b", CONFIG | {"base_model_name_or_path": "x"}),
        ("c", CONFIG | {"lora_alpha": 9}),
    ):
        (folder := tmp_path / name).mkdir()
        digests.append(read(folder_of(folder, config)).digest)
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3': only LORA is supported"),
        ({"bias": "lora_only"}, "bias is 'lora_only': only none is supported"),
        ({"use_dora": True}, "use_dora is set, which is not supported"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is set"),
        ({"target_parameters": ["mlp.experts.gate_up_proj"]}, "target_parameters is set"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices is set"),
        ({"layer_replication": [[0, 1]]}, "layer_replication is set"),
        ({"target_modules": None}, "target_modules has neither names nor a pattern"),
        ({"target_modules": {"a": 1}}, "target_modules has neither names nor a pattern"),
        ({"r": 0}, "r must be a number of 1 to 4096, not 0"),
        ({"r": "4"}, "r must be a number of 1 to 4096, not '4'"),
        ({"r": True}, "r must be a number of 1 to 4096, not True"),
        ({"r": None}, "r must be a number of 1 to 4096, not None"),
        ({"lora_alpha": "8"}, "lora_alpha must be a number, not '8'"),
        ({"lora_alpha": float("inf")}, "lora_alpha must be a number, not inf"),
        ({"lora_alpha": float("nan")}, "lora_alpha must be a number, not nan"),
        ({"lora_alpha": 10**400}, "lora_alpha must be a number, not 1000"),
        ({"alpha_pattern": {"q_proj": -(10**400)}}, "alpha_pattern.q_proj must be a number, not -1000"),
        ({"lora_alpha": 1e300}, "q_proj.lora_B.weight has numbers that are not finite"),
        ({"rank_pattern": [1]}, "rank_pattern is not an object"),
        ({"rank_pattern": {"q_proj": 1e9}}, "rank_pattern.q_proj must be a number of 1 to 4096"),
        ({"alpha_pattern": {"q_proj": None}}, "alpha_pattern.q_proj must be a number"),
        ({"alpha_pattern": {"(?=x)q_proj": 1}}, "the pattern '(?=x)q_proj' cannot be evaluated"),
        ({"r": 5}, "q_proj.lora_A.weight is [4, 64]; adapter_config.json gives it rank 5"),
        ({"rank_pattern": {"q_proj": 2}}, "q_proj.lora_A.weight is [4, 64]; adapter_config.json gives it rank 2"),
        ({"target_modules": ["v_proj"]}, "q_proj.lora_A.weight is of a module that target_modules"),
        ({"target_modules": ".*v_proj"}, "q_proj.lora_A.weight is of a module that target_modules"),
    ],
)  # fmt: skip
def test_a_configuration_of_another_kind_is_refused(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as refused:
        read(folder_of(tmp_path, CONFIG | change))
    assert str(refused.value).startswith("adapter_")


@pytest.mark.parametrize("targets", ["all-linear", ".*q_proj", "(?!vision).*q_proj", ["q_proj"], ["self_attn.q_proj"]])
def test_targets_in_every_form(targets: Any, tmp_path: Path) -> None:
    assert read(folder_of(tmp_path, CONFIG | {"target_modules": targets})).layers[1]


ALL = CONFIG | {"target_modules": "all-linear"}


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ({f"{LAYER}.self_attn.q_proj.lora_A.weight": (4, 64)}, "q_proj.lora_A.weight has no lora_B beside it"),
        ({f"{LAYER}.self_attn.q_proj.lora_B.weight": (192, 4)}, "q_proj.lora_B.weight has no lora_A beside it"),
        (
            PAIR | {f"{LAYER}.self_attn.q_proj.lora_magnitude_vector": (192,)},
            "q_proj.lora_magnitude_vector is of a kind",
        ),
        (PAIR | {f"{LAYER}.self_attn.q_proj.weight": (192, 64)}, "q_proj.weight is of a kind that is not supported"),
        (
            pair("model.layers.1.self_attn.q_proj", (4, 32), (192, 4)),
            "q_proj.lora_A.weight is [4, 32]; this model's self_attn.q_proj requires 64 columns",
        ),
        (
            pair("model.layers.1.self_attn.q_proj", (4, 64), (128, 4)),
            "q_proj.lora_B.weight is [128, 4]; this model's self_attn.q_proj requires 192 rows",
        ),
        (
            pair("model.layers.1.self_attn.q_proj", (4, 64), (192, 3)),
            "q_proj.lora_B.weight is [192, 3]; adapter_config.json gives it rank 4",
        ),
        (pair("model.layers.1.self_attn.q_proj", (4,), (192, 4)), "q_proj.lora_A.weight is [4], which is no matrix"),
        (
            pair("model.layers.1.self_attn.q_proj", (4, 64), (192, 4, 1)),
            "q_proj.lora_B.weight is [192, 4, 1], which is no matrix",
        ),
        (
            pair("model.layers.2.self_attn.q_proj", (4, 64), (192, 4)),
            "layers.2.self_attn.q_proj.lora_A.weight is of a module that this model does not have",
        ),
        (
            pair("model.vision.layers.0.q_proj"),
            "is of a module that this model does not have: the adapter is of another model",
        ),
        (pair("model.layers.1.mlp.experts.0.gate_proj"), "is of experts or their router, for which adapters are not"),
        (
            pair("lm_head"),
            "lm_head.lora_A.weight is of the embedding or the head, for which adapters are not supported",
        ),
        ({}, "there is no tensor"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(shapes: dict[str, tuple[int, ...]], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as refused:
        read(folder_of(tmp_path, ALL, shapes))
    assert str(refused.value).startswith("adapter_model.safetensors: ")


@pytest.mark.parametrize("module", ["mlp.experts.1.down_proj", "mlp.gate"])
def test_experts_and_their_router_are_refused(module: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is of experts or their router"):
        read(folder_of(tmp_path, ALL, pair(f"model.layers.0.{module}")), MIXTURE)


def test_attention_of_a_layer_that_has_a_convolution_is_refused(tmp_path: Path) -> None:
    base = AdapterBase(shape(conv_layers=frozenset({1}), conv_length=3), FAMILIES["lfm2"])
    with pytest.raises(
        ValueError, match=r"layers\.1\.self_attn\.q_proj\.lora_A.* is of a module that this model does not have"
    ):
        read(folder_of(tmp_path), base)


def test_a_part_of_a_fused_matrix_that_is_too_large_is_refused(tmp_path: Path) -> None:
    shapes = pair("model.layers.0.self_attn.qkv_proj", (4, 64), (192 + 2 * 64 + 16, 4))
    with pytest.raises(ValueError, match=r"qkv_proj.lora_B.weight is \[336, 4\]; this model's self_attn.v_proj"):
        read(folder_of(tmp_path, ALL, shapes))


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.full((4, 64), float("nan")), "has numbers that are not finite: the file is damaged"),
        (torch.zeros(4, 64, dtype=torch.int8), "is of torch.int8, which is not a type of weights"),
    ],
)
def test_numbers_that_are_none_are_refused(tensor: Tensor, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        read(folder_of(tmp_path, ALL, **{next(iter(PAIR)): tensor}))


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path.name} has no adapter_config.json")):
        read(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"adapter_config.json is not JSON"):
        read(tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(ValueError, match=r"has neither adapter_model.safetensors nor adapter_model.bin"):
        read(tmp_path)
    (tmp_path / "adapter_model.bin").write_bytes(pickle.dumps(print, protocol=2))
    with pytest.raises(ValueError, match=r"adapter_model.bin (holds more than tensors|is damaged)"):
        read(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(ValueError, match=r"adapter_model.safetensors is damaged"):
        read(tmp_path)
