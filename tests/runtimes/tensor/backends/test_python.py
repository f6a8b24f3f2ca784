"""Models written in Python: the allowed forms of a class, and the errors for other forms."""

from pathlib import Path

import pytest

from runtimes.tensor.backends.registry import backend, load_model
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Device, ModelLoadError
from tests.runtimes.tensor.instances.support import floats, one_to_one, write

pytestmark = pytest.mark.plain
CONFIG = one_to_one("thread")


def load(folder: Path, source: str, config: ModelConfig = CONFIG) -> object:
    return load_model(backend("python"), config, write(folder, source), Device(threads=2)).model


def test_its_constructor_receives_the_arguments_that_it_declares(tmp_path: Path) -> None:
    source = """
    class Model:
        def __init__(self, config, *, device, folder, more=1):
            self.seen = (config.name, device.threads, folder, more)
        def infer(self, inputs):
            return {"y": inputs["x"], "seen": self.seen}
    """
    model = load_model(backend("python"), CONFIG, write(tmp_path, source), Device(threads=2)).model
    assert model.infer({"x": floats([1, 2])})["seen"] == ("model", 2, tmp_path, 1)
    model.close()


def test_one_by_import_path_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "class Doubler:\n    def infer(self, inputs):\n        return {'y': 2}", "by_import_path.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = one_to_one("thread", parameters={"class": "by_import_path:Doubler"})
    assert load_model(backend("python"), config, tmp_path / "empty", Device()).model.infer({}) == {"y": 2}
    for path, message in (("nowhere.at_all:X", "no module nowhere"), ("by_import_path:Tripler", "no class `Tripler`")):
        with pytest.raises(ModelLoadError, match=message):
            load_model(backend("python"), one_to_one("thread", parameters={"class": path}), tmp_path, Device())


def test_a_file_of_another_name(tmp_path: Path) -> None:
    write(tmp_path, "class Model:\n    def infer(self, inputs):\n        return {'y': 3}", "three.py")
    config = one_to_one("thread", default_model_filename="three.py")
    assert load_model(backend("python"), config, tmp_path, Device()).model.infer({}) == {"y": 3}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", "has no class `Model`"),
        ("Model = 1", "has no class `Model`"),
        ("class Model:\n    async def infer(self, inputs): ...", "is async"),
        ("class Model:\n    def infer(self, inputs):\n        yield {}", "is a generator: set decoupled"),
        ("class Model:\n    def __init__(self, path): ...\n    def infer(self, inputs): ...", "requires `path`"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_the_error_of_an_unusable_model_names_the_change(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        load(tmp_path, source)


def test_a_folder_without_the_file(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"there is no model\.py"):
        load_model(backend("python"), CONFIG, tmp_path, Device())


def test_it_needs_declared_tensors_and_loads_its_own_weights(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="describe its inputs and outputs"):
        backend("python").complete(ModelConfig("model", "python"), tmp_path)
    assert backend("python").complete(CONFIG, tmp_path) == CONFIG
    with pytest.raises(ModelLoadError, match="`quantize`"):
        load(tmp_path, "class Model: ...", one_to_one("thread", quantize="int8"))


def test_a_version_that_is_closed_leaves_no_module_behind(tmp_path: Path) -> None:
    import sys

    before = set(sys.modules)
    source = "class Model:\n    def infer(self, inputs):\n        return {'y': __name__}"
    model = load_model(backend("python"), CONFIG, write(tmp_path, source), Device()).model
    assert model.infer({})["y"] in sys.modules
    model.close()
    assert {name for name in set(sys.modules) - before if name.startswith("_model_")} == set()
