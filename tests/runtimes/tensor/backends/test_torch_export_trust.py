"""Files of torch.export run no code as they are read."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from runtimes.tensor.backends.registry import backend, complete_config
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import ModelLoadError

CONFIG = ModelConfig("model", "torch")


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(1, 3),)), tmp_path / "program.pt2")
    return tmp_path / "program.pt2"


def changed(program: Path, place: str, content: bytes) -> Path:
    """The folder of a program whose archive has another file, in place of one of its own or beside all."""
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(program.with_name("model.pt2"), "w") as new:
        files = {name: old.read(name) for name in old.namelist()}
        files[f"{next(iter(files)).partition('/')[0]}/{place}"] = content
        for name, data in files.items():
            new.writestr(name, data)
    return program.parent


def test_pickled_objects_are_not_read(program: Path, tmp_path: Path) -> None:
    before = torch.load
    trace = tmp_path / "trace"
    torch.save(Touch(trace), tmp_path / "object")
    content = (tmp_path / "object").read_bytes()
    for place in ("data/weights/model.pt", "data/sample_inputs/model.pt"):
        with pytest.raises(ModelLoadError, match="pickled objects that are no tensors"):
            complete_config(backend("torch"), CONFIG, changed(program, place, content))
    assert not trace.exists()
    assert torch.load is before
    pickle.loads(pickle.dumps(Touch(trace)))
    assert trace.exists()


def test_native_code_beside_a_program_is_not_loaded(program: Path) -> None:
    folder = changed(program, "data/aotinductor/model/wrapper.so", b"code")
    with pytest.raises(ModelLoadError, match="native code beside its program"):
        complete_config(backend("torch"), CONFIG, folder)
