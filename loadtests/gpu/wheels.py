"""Fetches the packages that a machine with PyTorch and transformers lacks: `python -m loadtests.gpu.wheels FOLDER`.

There: `pip install --no-index --no-deps --target SITE FOLDER/*.whl`, and SITE in PYTHONPATH.
"""

import subprocess
import sys
from pathlib import Path

LACKING = (
    "msgspec", "pydantic", "pydantic_core", "annotated_types", "typing_inspection", "gguf", "httptools", "hpack", "h2",
    "hyperframe", "python_multipart", "pyjwt", "cryptography", "cffi", "pycparser", "llguidance", "sqlalchemy",
    "greenlet", "tzdata",
)  # fmt: skip
"""What the engine and the runtime import, beside what such machines have."""
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 24, 17)), "manylinux2014_x86_64")
MOST_BYTES = 60 << 20


def fetch(folder: Path, python: str = "3.12") -> int:
    """Fill the folder with wheels of this environment's versions. Returns their bytes."""
    from importlib import metadata

    platforms = [part for platform in PLATFORMS for part in ("--platform", platform)]
    pinned = [f"{name}=={metadata.version(name)}" for name in LACKING]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version",
         python, "--implementation", "cp", *platforms, "-d", str(folder), *pinned], check=True,
    )  # fmt: skip
    size = sum(file.stat().st_size for file in folder.glob("*.whl"))
    if size > MOST_BYTES:
        raise SystemExit(f"the wheels have {size:,} bytes, and {MOST_BYTES:,} at most may travel")
    return size


if __name__ == "__main__":
    print(f"{fetch(Path(sys.argv[1])):,} bytes")
