"""The configurations of stories are such as ops may write."""

from pathlib import Path
from random import Random

import yaml

from config.loader import load
from tests.simulation import comparisons, configurations

URLS = [f"http://10.0.0.{i}" for i in range(1, 7)]


def test_every_version_of_the_file_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    for seed in range(12):
        dice = Random(seed)
        written = configurations.first(dice, URLS)
        for version in range(3):
            path.write_text(yaml.safe_dump(written))
            load(path)
            path.write_text(yaml.safe_dump(comparisons.compared(seed, version, written)))
            load(path)
            written = configurations.changed(dice, written, URLS)
