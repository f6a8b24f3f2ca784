"""The step is compiled once, and where it cannot be, torch computes."""

import os
import platform
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runtimes.llm.engine.executor import TorchExecutor, make_executor
from runtimes.llm.native import build
from runtimes.llm.native.build import CompilerFailed, NativeUnavailable, targets
from runtimes.llm.native.executor import NativeExecutor, unsupported
from tests.runtimes.llm.native.models import BLOCK, CONTEXT, random_model, shape

pytestmark = pytest.mark.processes


def compiler(folder: Path, script: str) -> str:
    """A program in the compiler's place, which gets the source and `-o` where to put the library."""
    program = folder / "compiler"
    program.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def test_this_machine_has_a_path_of_its_own() -> None:
    assert targets()


def test_once_for_all(tmp_path: Path) -> None:
    """Two processes that need it at the same moment compile it once."""
    log = tmp_path / "calls"
    script = f"open({str(log)!r}, 'a').write('x'); import shutil; shutil.copy({_ready()!r}, sys.argv[-1])"
    code = (
        "import sys; from pathlib import Path; from runtimes.llm.native.build import library;"
        "library(sys.argv[1], Path(sys.argv[2]))"
    )
    environment = os.environ | {"CXX": compiler(tmp_path, script)}
    command = [sys.executable, "-c", code, targets()[0], str(tmp_path / "cache")]
    processes = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait(120) for process in processes] == [0, 0]
    assert log.read_text() == "x"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are those of x86")
def test_the_tiles_are_assembled_on_every_processor(tmp_path: Path) -> None:
    """`targets` compiles the tiles on few machines, which would be the first to see a mistake."""
    source, command = tmp_path / "tiles.cpp", next(path for name in build.COMPILERS if (path := shutil.which(name)))
    source.write_text(
        '#include "isa_amx.h"\nusing headrace::Amx;\n'
        'extern "C" void product(const void* a, const void* b, void* sum) {\n'
        "    Amx::allow(), Amx::enter(), Amx::clear<0>(), Amx::fill<1>(a, 64), Amx::fill<7>(b, 64);\n"
        "    Amx::multiply<0, 1, 7>(), Amx::spill<0>(sum, 64), Amx::leave();\n}\n"
    )
    flags = [*build.FLAGS, *build.TARGETS["amx"].flags, "-O1", "-include", "stdexcept", f"-I{build.HERE}", "-c"]
    subprocess.run([command, *flags, str(source), "-o", str(tmp_path / "tiles.o")], check=True)


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NativeUnavailable, match=r"no C\+\+ compiler"):
        build.library(targets()[0], tmp_path / "cache")


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path, "sys.exit('fatal error: no such header')"))
    with pytest.raises(NativeUnavailable, match="no such header"):
        build.library(targets()[0], tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.so"))


def test_a_compiler_that_fails_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, target = tmp_path / "calls", targets()[0]
    program = compiler(tmp_path, f"open({str(log)!r}, 'a').write('x'); sys.exit('fatal error: no such header')")
    monkeypatch.setenv("CXX", program)

    def started() -> int:
        log.write_text("")
        with pytest.raises(CompilerFailed, match="no such header") as failed:
            build.library(target, tmp_path / "cache")
        [record] = (tmp_path / "cache").glob("*.failed")
        assert log.read_text() or str(record) in str(failed.value)
        return len(log.read_text())

    assert [started(), started(), started()] == [1, 0, 0]
    [record] = (tmp_path / "cache").glob("*.failed")
    os.utime(record, (0, 0))
    assert [started(), started()] == [1, 0], "tried again after a day"
    os.utime(program, (1, 1))
    assert [started(), started()] == [1, 0], "another compiler is tried"
    monkeypatch.setenv("CXXFLAGS", "-g")
    log.write_text("")
    with pytest.raises(CompilerFailed):
        build.library(target, tmp_path / "cache")
    assert log.read_text() == "x", "other flags are tried"


def test_a_record_ends_with_a_compilation_that_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path, "sys.exit('fatal error: no such header')"))
    with pytest.raises(CompilerFailed):
        build.library(targets()[0], tmp_path / "cache")
    monkeypatch.setenv("CXX", compiler(tmp_path, f"import shutil; shutil.copy({_ready()!r}, sys.argv[-1])"))
    assert build.library(targets()[0], tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.failed"))


@pytest.mark.parametrize(
    "end",
    [
        "import os; os.kill(os.getpid(), 9)",
        "sys.exit('fatal error: Killed signal terminated program cc1plus')",
        "sys.exit('fatal error: error writing to /tmp/x.s: No space left on device')",
    ],
)
def test_a_compiler_that_was_interrupted_is_started_again(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "calls"
    monkeypatch.setenv("CXX", compiler(tmp_path, f"open({str(log)!r}, 'a').write('x'); {end}"))
    for _ in range(2):
        with pytest.raises(NativeUnavailable, match="interrupted"):
            build.library(targets()[0], tmp_path / "cache")
    assert log.read_text() == "xx"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(NativeUnavailable, match="stored or loaded"):
        build.library(targets()[0], tmp_path / "cache")


def test_half_a_library_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path, "open(sys.argv[-1], 'w').write('no library')"))
    with pytest.raises(NativeUnavailable, match="stored or loaded"):
        build.library(targets()[0], tmp_path / "cache")


def make(name: str, dtype: torch.dtype = torch.bfloat16) -> object:
    model = random_model(shape(), dtype)
    return make_executor(name, model, 4, BLOCK, context_length=CONTEXT, kv_dtype=torch.bfloat16)  # type: ignore[arg-type]


def test_which_executor() -> None:
    assert isinstance(make("auto"), NativeExecutor)
    assert isinstance(make("native"), NativeExecutor)
    assert isinstance(make("torch"), TorchExecutor)
    assert isinstance(make("auto", torch.float32), TorchExecutor)
    with pytest.raises(ValueError, match="bfloat16"):
        make("native", torch.float32)


def test_without_a_compiler_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(target: str) -> None:
        raise NativeUnavailable("there is no C++ compiler")

    monkeypatch.setattr("runtimes.llm.native.executor.library", none)
    executor = make("auto")
    assert isinstance(executor, TorchExecutor)
    assert len(executor.model.layers) == 2  # nothing was taken
    with pytest.raises(ValueError, match="compiler"):
        make("native")


def test_a_target_that_the_compiler_lacks_leaves_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _ready()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(build.TARGETS, "newest", build.BuildTarget(frozenset(), ("-mno-such-processor",)))
    monkeypatch.setattr("runtimes.llm.native.executor.targets", lambda: ["newest", *targets()])
    assert isinstance(make("auto"), NativeExecutor)
    assert "the native step for newest is not available, trying the next target" in caplog.text
    monkeypatch.setattr("runtimes.llm.native.executor.targets", lambda: ["newest", "emulated-amx"])
    with pytest.raises(ValueError, match=r"cannot compile the step.*recorded in"):
        make("native")


def test_unsupported_models_are_named() -> None:
    model = random_model(shape(), torch.bfloat16)
    assert unsupported(model, BLOCK) is None
    assert "multiple of 16" in str(unsupported(model, 24))
    assert "72" in str(unsupported(random_model(shape(intermediate_size=72), torch.bfloat16), BLOCK))
    assert "float16" in str(unsupported(random_model(shape(), torch.float16), BLOCK))
    assert "groups" in str(unsupported(random_model(shape(), torch.bfloat16, (8, 8, False)), BLOCK))


def _ready() -> str:
    return str(build.library(targets()[0])._name)
