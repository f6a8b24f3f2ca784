"""A model is loaded in the form that its files have, however fast they were rewritten."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtimes.tensor.backends.registry import backend, load_model
from runtimes.tensor.interfaces import Device
from tests.runtimes.tensor.instances.support import Kind, floats, one_to_one, outputs, running, write

pytestmark = pytest.mark.processes
NANOSECONDS = 1_700_000_000 * 10**9
MODEL = (
    "from .inner.constant import VALUE\nclass Model:\n    def infer(self, inputs):\n        return {'y': inputs['x'] "
)
TRITON = """
import sys
from pathlib import Path
from runtimes.tensor.triton_api import loading
folder = Path(sys.argv[1])
loading.offer_utils(folder)
print(loading.class_of(folder / "model.py").values)
"""


def put(folder: Path, source: str, name: str = "model.py") -> None:
    """Write a file whose time of modification is always the same."""
    write(folder, source, name)
    os.utime(folder / name, ns=(NANOSECONDS, NANOSECONDS))


def bytecode(folder: Path) -> list[Path]:
    return list(folder.rglob("__pycache__"))


async def served(folder: Path, kind: Kind) -> float:
    async with running(one_to_one(kind, dims=(1,)), folder) as instance:
        return float((await outputs(instance, {"x": floats([3])}))["y"][0, 0])


@pytest.mark.parametrize("kind", ["thread", "process"])
async def test_a_source_of_the_same_size_and_second_is_loaded_again(kind: Kind, tmp_path: Path) -> None:
    put(tmp_path / "inner", "VALUE = 2", "constant.py")
    put(tmp_path, MODEL + "+ VALUE}")
    assert await served(tmp_path, kind) == 5
    put(tmp_path, MODEL + "* VALUE}")
    assert await served(tmp_path, kind) == 6
    put(tmp_path / "inner", "VALUE = 4", "constant.py")
    assert await served(tmp_path, kind) == 12
    assert not bytecode(tmp_path)


@pytest.mark.plain
def test_a_module_beside_the_model_may_be_added_later(tmp_path: Path) -> None:
    """A listing of the folder is never older than the model: the times of both are those of a coarse clock."""
    for number in range(20):
        write(tmp_path, f"VALUE = {number}", f"added{number}.py")
        source = f"from .added{number} import VALUE\nclass Model:\n    def infer(self, inputs):\n        return VALUE"
        model = load_model(backend("python"), one_to_one("thread"), write(tmp_path, source), Device()).model
        assert model.infer({}) == number
        model.close()


def test_a_model_written_for_triton(tmp_path: Path) -> None:
    """Its module may import those of the version's folder and of the model's."""
    version = tmp_path / "1"
    for one, other, third in ((1, 2, 3), (4, 2, 3), (4, 5, 3), (4, 5, 6)):
        put(version, f"VALUE = {one}", "beside_the_file.py")
        put(tmp_path / "shared", f"VALUE = {other}", "module.py")
        put(
            version,
            "import beside_the_file, shared.module\n"
            f"class TritonPythonModel:\n    values = beside_the_file.VALUE, shared.module.VALUE, {third}",
        )
        command = [sys.executable, "-c", TRITON, str(version)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
        assert printed.strip() == str((one, other, third))
