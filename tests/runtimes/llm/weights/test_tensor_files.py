"""Every layout of a folder and of a split GGUF file is the same model; an incomplete one is refused by name."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from runtimes.llm.model.hugging_face import hugging_face_config
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.gguf_checkpoint import GgufCheckpoint, gguf_pooling
from runtimes.llm.weights.gguf_metadata import InvalidGguf, parts_of
from runtimes.llm.weights.loader import load_model, only_embeds, open_checkpoint
from runtimes.llm.weights.tensor_files import InvalidCheckpoint, TensorFiles
from tests.runtimes.llm.families import write_gguf
from tests.runtimes.llm.reference import save_safetensors, tiny_llama

NAMES = ("model.embed_tokens.weight", "model.layers.1.mlp.down_proj.weight", "model.norm.weight")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_safetensors(tiny_llama(), tmp_path_factory.mktemp("whole"))


def tensors_of(folder: Path) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}


def written(whole: Path, folder: Path, *, form: str, shards: int, index: bool, prefix: str = "model.") -> Path:
    """The model of `whole` in `folder`, in another layout."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(whole / "config.json", folder)
    tensors = {name.replace("model.", prefix, 1): tensor for name, tensor in tensors_of(whole).items()}
    stem, suffix = ("model", "safetensors") if form == "safetensors" else ("pytorch_model", "bin")
    places: dict[str, str] = {}
    for number in range(shards):
        part = dict(list(tensors.items())[number::shards])
        name = f"{stem}.{suffix}" if shards == 1 else f"{stem}-{number + 1:05}-of-{shards:05}.{suffix}"
        if form == "safetensors":
            save_file(part, folder / name)
        else:
            torch.save(part, folder / name, _use_new_zipfile_serialization=form == "bin")
        places |= dict.fromkeys(part, name)
    if index:
        (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


@settings(max_examples=25)
@given(
    form=st.sampled_from(["safetensors", "bin", "old bin"]),
    shards=st.integers(1, 4),
    index=st.booleans(),
    prefix=st.sampled_from(["model.", "", "language_model.model.", "model.language_model.", "language_model."]),
)
def test_every_layout_of_a_folder_is_the_same_model(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, form: str, shards: int, index: bool, prefix: str
) -> None:
    folder = written(
        whole, tmp_path_factory.mktemp("layout"), form=form, shards=shards, index=index and shards > 1, prefix=prefix
    )
    expected = tensors_of(whole)
    checkpoint = open_checkpoint(folder)
    for name in NAMES:
        assert torch.equal(checkpoint.tensor(name), expected[name])
    if shards > 1 and not index:
        missing = sorted(path for path in folder.iterdir() if "-of-" in path.name)[shards - 1]
        missing.unlink()
        with pytest.raises(UnsupportedModel, match=f"lacks {missing.name}"):
            open_checkpoint(folder)


def test_safetensors_go_before_a_pickle(whole: Path, tmp_path: Path) -> None:
    folder = written(whole, tmp_path, form="safetensors", shards=2, index=False)
    (folder / "pytorch_model.bin").write_bytes(b"never read")
    load_model(folder, device="cpu")


class _Code:
    def __reduce__(self) -> Any:
        return print, ("this was run",)


@pytest.mark.parametrize("old", [False, True])
def test_code_in_a_pickle_is_not_run(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], old: bool
) -> None:
    folder = written(whole, tmp_path, form="bin", shards=1, index=False)
    torch.save({"a": _Code()}, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not old)
    with pytest.raises(InvalidCheckpoint, match=r"pytorch_model\.bin holds more than tensors \(.*print.*safetensors"):
        load_model(folder, device="cpu")
    assert "this was run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps([1], protocol=2), "pytorch_model.bin"),
        (b"", "is damaged or cut short: it is empty"),
        (b"<html>", "is a web page"),
        ({"a": 1}, "holds 'a', which is no tensor"),
        ({}, "holds no tensors by name"),
        ([torch.ones(2)], "holds no tensors by name"),
    ],
)
def test_pickles_of_something_else(whole: Path, tmp_path: Path, content: Any, message: str) -> None:
    folder = written(whole, tmp_path, form="bin", shards=1, index=False)
    path = folder / "pytorch_model.bin"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(InvalidCheckpoint, match=message) as refused:
        load_model(folder, device="cpu")
    assert "\n" not in str(refused.value)


@settings(max_examples=40)
@given(share=st.floats(0, 0.999), old=st.booleans())
def test_a_pickle_that_is_cut_short(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, share: float, old: bool
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"cut-{old}"
    path = folder / "pytorch_model.bin"
    if not folder.exists():
        written(whole, folder, form="old bin" if old else "bin", shards=1, index=False)
        shutil.copy(path, folder / "whole")
    content = (folder / "whole").read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InvalidCheckpoint, match=r"pytorch_model\.bin"):
        load_model(folder, device="cpu")


def test_the_first_names_of_layer_norms(tmp_path: Path) -> None:
    save_file(
        {"encoder.LayerNorm.gamma": torch.ones(2), "encoder.LayerNorm.beta": torch.zeros(2)},
        tmp_path / "model.safetensors",
    )
    files = TensorFiles(tmp_path)
    assert files.tensor("encoder.LayerNorm.weight").tolist() == [1, 1]
    assert files.shape("encoder.LayerNorm.bias") == (2,)


@pytest.mark.parametrize("architectures", [["LlamaModel"], None])
def test_a_model_without_a_head_only_embeds(tmp_path: Path, architectures: Any) -> None:
    model = tiny_llama(tie_word_embeddings=False)
    save_safetensors(model.model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"architectures": architectures}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert only_embeds(tmp_path)
    assert load_model(tmp_path, device="cpu").config.tie_word_embeddings


def test_a_model_with_a_head_answers(whole: Path, tmp_path: Path) -> None:
    assert not only_embeds(whole)
    assert not only_embeds(write_gguf(tmp_path / "model.gguf", tiny_llama()))


# ── fields of config.json, as transformers reads them ─────────────────────────────────────────────────


def test_a_llama_has_no_window(whole: Path) -> None:
    raw = json.loads((whole / "config.json").read_text())
    changed = raw | {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
    assert hugging_face_config(changed) == hugging_face_config(raw)
    assert hugging_face_config(changed | {"model_type": "mistral"}).windows == {8}


def test_scaling_beside_parameters_replaces_them(whole: Path) -> None:
    raw = json.loads((whole / "config.json").read_text())
    raw.pop("max_position_embeddings")
    plain, scaling = hugging_face_config(raw), {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}
    assert plain.context_length == 2048
    changed = hugging_face_config(raw | {"rope_parameters": {"rope_theta": 1e4}, "rope_scaling": scaling})
    assert changed.kinds == hugging_face_config(raw | {"rope_parameters": scaling}).kinds != plain.kinds


# ── GGUF ──────────────────────────────────────────────────────────────────────────────────────────────


def split(whole: Path, folder: Path, count: int, **changes: Any) -> Path:
    """The file `whole` in `count` parts, as llama.cpp's gguf-split writes them; the first part holds no tensor."""
    reader = gguf.GGUFReader(whole)
    tensors = [reader.tensors[number :: count - 1] for number in range(count - 1)]
    for number, part in enumerate([[], *tensors]):
        writer = gguf.GGUFWriter(folder / f"m-{number + 1:05}-of-{count:05}.gguf", "llama")
        for key, field in reader.fields.items() if number == 0 else ():
            if not key.startswith("GGUF.") and key != "general.architecture":
                writer.add_key_value(key, field.contents(), field.types[0], field.types[-1])
        writer.add_uint16("split.no", changes.get("no", number))
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", changes.get("tensors", len(reader.tensors)))
        for tensor in part:
            writer.add_tensor(tensor.name, tensor.data, raw_shape=None, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return folder / parts_of(f"m-00001-of-{count:05}.gguf")[0]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_split_file_is_the_same_model(tmp_path: Path, count: int) -> None:
    whole = write_gguf(tmp_path / "model.gguf", tiny_llama())
    first = split(whole, tmp_path, count)
    one, other = GgufCheckpoint(whole), GgufCheckpoint(first)
    assert one.config == other.config
    assert sorted(one.stored_shapes) == sorted(other.stored_shapes)
    for name in NAMES:
        assert torch.equal(one.tensor(name), other.tensor(name))


def test_parts_that_are_not_those_of_the_model(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "model.gguf", tiny_llama())
    first = split(whole, tmp_path, 3)
    second = tmp_path / parts_of(first.name)[1]
    with pytest.raises(
        UnsupportedModel, match=r"lacks general\.architecture|is one part of 3: name the first, m-00001"
    ):
        open_checkpoint(second)
    shutil.copy(tmp_path / parts_of(first.name)[2], second)
    with pytest.raises(InvalidGguf, match=r"m-00002-of-00003\.gguf is not part 2 of 3"):
        open_checkpoint(first)
    second.unlink()
    with pytest.raises(UnsupportedModel, match=r"m-00002-of-00003.gguf is not beside m-00001-of-00003.gguf"):
        open_checkpoint(first)
    with pytest.raises(InvalidGguf, match="tensors, not 99"):
        open_checkpoint(split(whole, tmp_path, 3, tensors=99))


@given(stem=st.text("abc-.", min_size=1), number=st.integers(1, 40), count=st.integers(1, 40))
def test_the_names_of_parts(stem: str, number: int, count: int) -> None:
    names = parts_of(f"{stem}-{number:05}-of-{count:05}.gguf")
    assert len(set(names)) == count
    assert names[0] == f"{stem}-00001-of-{count:05}.gguf"
    assert parts_of(names[-1]) == names
    assert parts_of(f"{stem}.gguf") == [f"{stem}.gguf"]


@settings(max_examples=20)
@given(
    heads=st.sampled_from([[4, 4], [4, 2], [4]]),
    kv=st.sampled_from([[2, 2], [2, 1], [2]]),
    eos=st.sampled_from([3, 95, 96, 10**6]),
    pooling=st.integers(0, 5),
)
def test_metadata_that_llama_cpp_takes(
    tmp_path_factory: pytest.TempPathFactory, heads: list[int], kv: list[int], eos: int, pooling: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "lenient.gguf"
    write_gguf(
        path,
        tiny_llama(),
        fields={
            "tokenizer.ggml.eos_token_id": eos,
            "llama.pooling_type": pooling,
            "llama.attention.head_count": heads,
            "llama.attention.head_count_kv": kv,
        },
    )
    if pooling > 3:
        with pytest.raises(UnsupportedModel, match=r"pooling_type .* is not supported"):
            gguf_pooling(path)
    else:
        assert gguf_pooling(path) == ["auto", "mean", "cls", "last"][pooling]
    if len({*heads}) > 1 or len({*kv}) > 1:
        with pytest.raises(UnsupportedModel, match="differs between layers"):
            open_checkpoint(path)
        return
    config = open_checkpoint(path).config
    assert (config.num_heads, config.num_kv_heads) == (4, 2)
    assert config.eos_token_ids == ({eos} if eos < 96 else set())
