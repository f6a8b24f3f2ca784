"""Writes constraints.txt: the versions of all packages in the images, from the environment that runs this.

python deploy/image/pin.py      in the environment of `make test-all`, once its tests pass
"""

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
HEAD = "# The versions of all packages in the images, so that a commit builds the same image again: see pin.py.\n"


def pins() -> dict[str, str]:
    """The version of each package that the extras of the Dockerfile need, those inside included."""
    builds = re.findall(r"build\.sh \S+ ([\w,]+)", (HERE / "Dockerfile").read_text())
    versions: dict[str, str] = {}
    wanted = [("headrace", frozenset(",".join(builds).split(",")))]
    seen = set(wanted)
    while wanted:
        name, extras = wanted.pop()
        versions[name] = metadata.version(name).partition("+")[0]  # without a local label such as +cpu
        for requirement in map(Requirement, metadata.requires(name) or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                needed = canonicalize_name(requirement.name), frozenset(requirement.extras)
                if needed not in seen:
                    seen.add(needed)
                    wanted.append(needed)
    del versions["headrace"]
    return versions


if __name__ == "__main__":
    lines = [f"{name}=={version}\n" for name, version in sorted(pins().items())]
    (HERE / "constraints.txt").write_text(HEAD + "".join(lines))
