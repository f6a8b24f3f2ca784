"""The step under the address and undefined-behaviour sanitizers: no read or write leaves its memory."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
FLAGS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
SUITES = ("test_executor.py", "test_adapters.py", "test_checks.py")


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_native_tests_hold_under_sanitizers() -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    libraries = [_library(compiler, name) for name in ("libasan.so", "libubsan.so")]
    if not all(Path(library).is_absolute() for library in libraries):
        pytest.skip("needs the sanitizers of g++")
    environment = os.environ | {
        "CXX": compiler,
        "CXXFLAGS": FLAGS,
        "LD_PRELOAD": ":".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",  # the interpreter's own memory is not freed at its end
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    suites = [str(Path(__file__).with_name(name)) for name in SUITES]
    # Without pytest's capture, which an abort leaves unread.
    command = [sys.executable, "-m", "pytest", "-qxs", "-p", "no:cacheprovider", "--timeout", "900", *suites]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1700)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[:6000]


def _library(compiler: str, name: str) -> str:
    printed = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return printed.stdout.strip()
