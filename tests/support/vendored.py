"""Renews the console's JavaScript libraries from npm: `make vendor`.

Each file is the package's own build as one ES module. Only imports change: browsers resolve relative ones alone.
"""

import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

FOLDER = Path("gateway/admin/console/static/vendor")


class Vendored(NamedTuple):
    """One file of a package of npm."""

    package: str
    version: str
    path: str
    name: str
    change: Callable[[str], str] = str


def _relative(text: str) -> str:
    return text.replace('from"preact"', 'from"./preact.js"')


FILES = (
    Vendored("preact", "11.2.0", "dist/preact.mjs", "preact.js"),
    Vendored("preact", "11.2.0", "hooks/dist/hooks.mjs", "hooks.js", _relative),
    Vendored("htm", "3.1.1", "dist/htm.module.js", "htm.js"),
    Vendored("uplot", "1.6.32", "dist/uPlot.iife.min.js", "uplot.js", lambda text: f"{text}\nexport default uPlot;\n"),
    Vendored("uplot", "1.6.32", "dist/uPlot.min.css", "uplot.css"),
)


def renew() -> None:
    """Write every file, and the licences of their packages."""
    licences = []
    with tempfile.TemporaryDirectory() as folder:
        for package, version in sorted({(file.package, file.version) for file in FILES}):
            packed = ["npm", "pack", "--json", f"{package}@{version}"]
            done = subprocess.run(packed, cwd=folder, check=True, capture_output=True, text=True)
            content = _content(Path(folder) / json.loads(done.stdout)[0]["filename"])
            licences.append(f"{package} {version}\n\n{content['LICENSE'].strip()}\n")
            for file in FILES:
                if file.package == package:
                    text = file.change(_without_map(content[file.path]))
                    (FOLDER / file.name).write_text(text)
    (FOLDER / "LICENSES.txt").write_text(f"\n{'-' * 80}\n\n".join(licences))


def _content(archive: Path) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as files:
        names = [member.name for member in files if member.isfile() and not member.name.endswith(".map")]
        read = {name.partition("/")[2]: files.extractfile(name) for name in names}
        return {name: file.read().decode(errors="replace") for name, file in read.items() if file is not None}


def _without_map(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(line for line in lines if not line.startswith("//# sourceMappingURL")) + "\n"


if __name__ == "__main__":
    renew()
