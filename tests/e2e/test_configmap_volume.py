"""A configuration in a volume of a ConfigMap, which the kubelet replaces as a whole: a reload without a restart."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.helm import CHART, of_kind, render
from tests.support.processes import gateway


class Volume:
    """A folder that is written as the kubelet's AtomicWriter writes a volume.

    Files are symbolic links to `..data/NAME`, and `..data` is a symbolic link to a folder with the content. A new
    content is a new folder, to which `..data` is moved by a rename. The old folder is then removed.
    """

    def __init__(self, path: Path, names: tuple[str, ...]) -> None:
        self.path, self._number = path, 0
        self._fill({})
        for name in names:
            (path / name).symlink_to(Path("..data") / name)

    def replace(self, files: dict[str, str]) -> None:
        old = (self.path / "..data").resolve()
        self._fill(files)
        shutil.rmtree(old)

    def _fill(self, files: dict[str, str]) -> None:
        self._number += 1
        content = self.path / f"..2026_11_23_{self._number}"
        content.mkdir()
        for name, text in files.items():
            (content / name).write_text(text)
        link = self.path / "..data_tmp"
        link.symlink_to(content.name)
        link.rename(self.path / "..data")


def configuration(text: str, endpoints: int) -> dict[str, Any]:
    """The chart's configuration with listeners and endpoints of this machine."""
    parsed: dict[str, Any] = yaml.safe_load(text)
    pools = [{"name": "smollm2", "endpoints": [f"http://127.0.0.1:{port}" for port in range(1, endpoints + 1)]}]
    return {**parsed, "listen": {"http": "127.0.0.1:0", "admin": "127.0.0.1:0"}, "auth": {}, "pools": pools}


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_swapped_configmap_is_applied_and_an_invalid_one_is_not(tmp_path: Path, workers: int) -> None:
    objects = render(CHART / "examples" / "quickstart.yaml")
    (text,) = (each["data"]["headrace.yaml"] for each in of_kind(objects, "ConfigMap"))
    volume = Volume(tmp_path, ("headrace.yaml",))
    async with gateway(tmp_path, {**configuration(text, 1), "workers": workers}) as g:
        written: dict[str, Any] = yaml.safe_load((tmp_path / "headrace.yaml").read_text())
        process = g.process.pid
        volume.replace({"headrace.yaml": yaml.safe_dump({**written, **configuration(text, 2), "workers": workers})})
        await g.until("len(s['endpoints']) == 2")
        volume.replace({"headrace.yaml": "version: 1\nnonsense: true\n"})
        await g.until("'nonsense' in s['configuration']['last_error']")
        assert len((await g.state())["endpoints"]) == 2
        volume.replace({"headrace.yaml": yaml.safe_dump({**written, **configuration(text, 3), "workers": workers})})
        await g.until("len(s['endpoints']) == 3")
        assert (g.process.pid, g.process.returncode) == (process, None)
