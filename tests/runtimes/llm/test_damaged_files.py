"""Weights that are cut short, damaged or misnamed are refused, with a message that names the cause."""

import contextlib
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFReader, GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from runtimes.llm.model.llama import Llama
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.weights.gguf_metadata import InvalidGguf, read_directory
from runtimes.llm.weights.loader import load_model, open_checkpoint
from runtimes.llm.weights.tensor_files import InvalidCheckpoint
from tests.runtimes.llm.families import write_gguf
from tests.runtimes.llm.reference import save_safetensors, tiny_llama
from tests.support.cases import cases


def load(path: Path) -> Llama:
    return load_model(path, dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def whole_gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "model.gguf", tiny_llama()).read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_safetensors(tiny_llama(), tmp_path)


def gguf(folder: Path, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path


# ── any file ──────────────────────────────────────────────────────────────────────────────────────────

OTHERS = {
    b"": "is empty",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a": "git lfs pull",
    b"<!DOCTYPE html><html>404</html>": "is a web page",
    b"PK\x03\x04" + b"\0" * 60: "zip archive",
    b"\x1f\x8b" + b"\0" * 60: "gzip",
    b"\xff" * 64: "begins with",
}


@pytest.mark.parametrize(("content", "message"), OTHERS.items(), ids=list(OTHERS.values()))
def test_a_gguf_file_that_is_something_else(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InvalidGguf, match=f"model.gguf is not a GGUF file: it .*{message}"):
        load(gguf(tmp_path, content))


@pytest.mark.parametrize(("content", "message"), OTHERS.items(), ids=list(OTHERS.values()))
def test_safetensors_that_are_something_else(folder: Path, content: bytes, message: str) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(InvalidCheckpoint, match=rf"model\.safetensors is damaged.*{message}"):
        load(folder)


# ── GGUF ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_gguf_file_that_is_cut_short(tmp_path: Path, whole_gguf: bytes, share: float) -> None:
    with pytest.raises(InvalidGguf, match="cut short"):
        load(gguf(tmp_path, whole_gguf[: int(len(whole_gguf) * share)]))


LAYER = [
    f"model.layers.0.{name}" for name in ("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj")
]


@settings(max_examples=60)
@given(data=st.data())
def test_no_byte_of_a_gguf_header_brings_it_down(
    whole_gguf: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A file with any damaged header is refused, or read as a model of other numbers."""
    path = gguf(tmp_path_factory.getbasetemp(), whole_gguf)
    begin = min(place.start for place in read_directory(path).tensors.values())
    damaged = bytearray(whole_gguf)
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, begin - 1), st.integers(0, 255)), min_size=1)):
        damaged[place] = byte
    with contextlib.suppress(InvalidGguf, UnsupportedModel):
        checkpoint = open_checkpoint(gguf(path.parent, bytes(damaged)))
        for name in ("model.embed_tokens", "model.norm", *LAYER):
            checkpoint.weight(f"{name}.weight")


def test_the_places_of_tensors_are_those_that_llama_cpp_reads(tmp_path: Path, whole_gguf: bytes) -> None:
    path = gguf(tmp_path, whole_gguf)
    ours = read_directory(path).tensors
    theirs = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    assert sorted(ours) == sorted(theirs)
    for name, tensor in theirs.items():
        assert ours[name].shape == tuple(int(length) for length in reversed(tensor.shape))
        assert (ours[name].kind, ours[name].start) == (int(tensor.tensor_type), tensor.data_offset)


def test_an_alignment_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    for name in ("a", "b"):
        writer.add_tensor(name, np.full(3, 7, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    places = read_directory(path).tensors
    content = path.read_bytes()
    assert {struct.unpack_from("<3f", content, place.start) for place in places.values()} == {(7.0, 7.0, 7.0)}


# ── safetensors ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("keep", [4, 40, 0.5, 0.999])
def test_safetensors_that_are_cut_short(folder: Path, keep: float) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: keep if isinstance(keep, int) else int(len(whole) * keep)])
    with pytest.raises(InvalidCheckpoint, match=r"model\.safetensors is damaged, cut short"):
        load(folder)


def test_a_shard_that_is_missing(tmp_path: Path) -> None:
    save_safetensors(tiny_llama(), tmp_path, max_shard_size="20KB")
    second = sorted(tmp_path.glob("model-*.safetensors"))[1]
    second.unlink()
    with pytest.raises(UnsupportedModel, match=f"lacks {second.name}"):
        load(tmp_path)


def _with_numbers(change: Callable[[dict[str, torch.Tensor]], None], folder: Path) -> Path:
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)
    return folder


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["model.layers.1.mlp.down_proj.weight", "model.norm.weight"])
def test_numbers_that_are_none(folder: Path, name: str, number: float) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name].view(-1)[5] = number

    with pytest.raises(UnsupportedModel, match=f"{name} has numbers that are not finite"):
        load(_with_numbers(spoil, folder))


def test_a_scale_that_is_no_number(tmp_path: Path) -> None:
    import gguf as package

    model = tiny_llama(hidden_size=64, intermediate_size=64)
    path = write_gguf(tmp_path / "model.gguf", model, quantise=package.GGMLQuantizationType.Q8_0)
    place = read_directory(path).tensors["blk.1.ffn_up.weight"]
    damaged = bytearray(path.read_bytes())
    damaged[place.start : place.start + 2] = np.float16(np.nan).tobytes()
    path.write_bytes(damaged)
    with pytest.raises(UnsupportedModel, match=r"blk\.1\.ffn_up\.weight has numbers"):
        load(path)


def test_a_tensor_of_whole_numbers(folder: Path) -> None:
    def whole(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.norm.weight"] = torch.ones(32, dtype=torch.int64)

    with pytest.raises(UnsupportedModel, match=r"model\.norm\.weight is of torch\.int64"):
        load(_with_numbers(whole, folder))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "config.json is not JSON: it begins with"),
        (b"", "config.json is not JSON: it is empty"),
        (b"[]", "config.json is not a JSON object"),
        (b"\xff\xfe\x00", "config.json is not JSON"),
        (b'{"model_type": "llama"}', "config.json lacks "),
    ],
)
def test_a_configuration_that_is_none(folder: Path, content: bytes, message: str) -> None:
    (folder / "config.json").write_bytes(content)
    with pytest.raises((InvalidCheckpoint, UnsupportedModel), match=message):
        load(folder)


@pytest.mark.parametrize(
    "changes",
    cases(__file__, "nonsense"),
)
def test_a_configuration_of_nonsense(folder: Path, changes: dict[str, object]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises((InvalidCheckpoint, UnsupportedModel)):
        load(folder)


def test_an_index_that_is_none(tmp_path: Path) -> None:
    save_safetensors(tiny_llama(), tmp_path, max_shard_size="20KB")
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(InvalidCheckpoint, match=r"model\.safetensors\.index\.json lacks weight_map"):
        load(tmp_path)
