"""A model file with other sizes in it is refused in one line, or computes within its bounds."""

import json
import os
import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.memory import NotEnoughMemory
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.native.build import NativeUnavailable
from runtimes.llm.native.executor import NativeExecutor
from runtimes.llm.weights.gguf_metadata import InvalidGguf, read_directory
from runtimes.llm.weights.loader import load_model
from runtimes.llm.weights.tensor_files import InvalidCheckpoint
from tests.runtimes.llm.families import tiny, write_gguf
from tests.runtimes.llm.native.models import chunk
from tests.runtimes.llm.reference import save_safetensors

CASES = int(os.environ.get("HEADRACE_FUZZ_FILES", "40"))
NUMBERS = (
    0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 96, 128, 255, 256, 257, 512, 1000, 4095, 4096, 5000,
    65536, 2**24, 2**31 - 1, 2**32 - 1,
)  # fmt: skip
JSON_NUMBERS: tuple[Any, ...] = (
    *NUMBERS,
    -1,
    -64,
    2**63,
    10**30,
    0.5,
    1e-40,
    1e38,
    -0.0,
    True,
    False,
    None,
    "16",
    [],
    [16],
    {},
)
_SHAPES = re.compile(rb"attention|rope|_count|_length|attn_logit|final_logit|eos_token_id")
REFUSED = (InvalidGguf, InvalidCheckpoint, UnsupportedModel, NotEnoughMemory)


@pytest.fixture(scope="module", params=["llama", "qwen3", "gemma2"])
def gguf(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "model.gguf", tiny(request.param, head_dim=32))


@pytest.fixture(scope="module", params=["llama", "phi3-longrope", "gemma3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes = {} if request.param == "phi3-longrope" else {"head_dim": 32}
    return save_safetensors(tiny(request.param, **changes), tmp_path_factory.mktemp("folder"))


def test_a_gguf_file_of_other_numbers(gguf: Path) -> None:
    whole, chance = gguf.read_bytes(), random.Random(gguf.stat().st_size)
    end = min(place.start for place in read_directory(gguf).tensors.values())
    changed = gguf.with_name("changed.gguf")
    places = _number_places(whole, end)
    for case in range(CASES):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 2)):
            struct.pack_into("<I", damaged, chance.choice(places), chance.choice(NUMBERS))
        changed.write_bytes(damaged)
        assert_refused_or_in_bounds(changed, case)


def test_a_configuration_of_other_numbers(folder: Path) -> None:
    path = folder / "config.json"
    whole, chance = json.loads(path.read_text()), random.Random(len(path.read_text()))
    try:
        for case in range(CASES):
            changed = json.loads(json.dumps(whole))
            for _ in range(chance.randint(1, 2)):
                _change(changed, chance)
            path.write_text(json.dumps(changed))
            assert_refused_or_in_bounds(folder, case)
    finally:
        path.write_text(json.dumps(whole))


@pytest.mark.parametrize("dims", [34, 64, 5000, 2**31])
def test_a_rotation_beyond_the_head_is_refused(dims: int, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", tiny("mistral", head_dim=32))
    whole = bytearray(path.read_bytes())
    at = whole.index(b"llama.rope.dimension_count") + len(b"llama.rope.dimension_count") + 4
    struct.pack_into("<I", whole, at, dims)
    path.write_bytes(whole)
    with pytest.raises(UnsupportedModel, match=r"rotation of|cannot be turned"):
        load_model(path, device="cpu")


def assert_refused_or_in_bounds(path: Path, case: int) -> None:
    refused = ""
    try:
        model = load_model(path, dtype="bfloat16", device="cpu")
    except REFUSED as error:
        refused = str(error)
    if refused:
        assert "\n" not in refused, case
        assert len(refused) < 600, case
        return
    context = min(model.config.context_length, 32)
    step = [chunk(0, [1, 2, 3], [0, 1])] if context >= 3 else [chunk(0, [1], [0])]
    rows = [sum(len(one.token_ids) for one in step) - 1]
    vocab = model.config.vocab_size
    assert TorchExecutor(model, 4, 16, context_length=context).logits(step, rows).shape == (1, vocab)
    try:
        native = NativeExecutor(model, 4, 16, context_length=context, threads=1)
    except NativeUnavailable:
        return
    assert native.logits(step, rows).shape == (1, vocab)


def _number_places(whole: bytes, end: int) -> list[int]:
    """The offsets of 32-bit values of keys, and of the lengths in tensors' shapes."""
    places = []
    for key in _keys(whole):
        at = whole.index(key) + len(key)
        if struct.unpack_from("<I", whole, at)[0] in (4, 5, 6):
            places.append(at + 4)
    for name in (b"token_embd.weight", b"blk.0.attn_q.weight", b"blk.1.ffn_down.weight", b"output_norm.weight"):
        at = whole.index(name) + len(name)
        dimensions = struct.unpack_from("<I", whole, at)[0]
        places += [at, *(at + 4 + 8 * i for i in range(dimensions)), at + 4 + 8 * dimensions, at + 8 + 8 * dimensions]
    return [place for place in places if place < end]


def _keys(whole: bytes) -> list[bytes]:
    """The keys of the model's shape."""
    return sorted(key for key in set(re.findall(rb"[a-z0-9_.]{8,60}", whole[:4000])) if _SHAPES.search(key))


def _change(value: Any, chance: random.Random) -> None:
    """One number somewhere in it."""
    inner = [key for key, one in value.items() if isinstance(one, dict) and one]
    if inner and chance.random() < 0.4:
        _change(value[chance.choice(inner)], chance)
        return
    keys = [key for key, one in value.items() if isinstance(one, int | float | list)]
    if keys:
        value[chance.choice(keys)] = chance.choice(JSON_NUMBERS)
