"""Writes constraints.txt: the versions of all packages of the images and of the tests, from the environment that runs
this. A release of somebody's package changes nothing here until these lines change.

make pins      once the tests pass with newer versions
"""

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
HEAD = """\
# The versions of all packages in the images and in the environments of the Makefile, so that a commit builds and tests
# the same again. `make pins` writes them.
"""


def pins() -> dict[str, str]:
    """The version of each package that the extras of the Dockerfile and of the tests need, those inside included."""
    builds = re.findall(r"build\.sh \S+ ([\w,]+)", (ROOT / "deploy/image/Dockerfile").read_text())
    versions: dict[str, str] = {}
    left = [("headrace", frozenset(["dev", *",".join(builds).split(",")]))]
    seen = set(left)
    while left:
        name, extras = left.pop()
        versions[name] = metadata.version(name).partition("+")[0]  # without a local label such as +cpu
        for requirement in map(Requirement, metadata.requires(name) or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                needed = canonicalize_name(requirement.name), frozenset(requirement.extras)
                if needed not in seen:
                    seen.add(needed)
                    left.append(needed)
    del versions["headrace"]
    return versions


if __name__ == "__main__":
    lines = [f"{name}=={version}\n" for name, version in sorted(pins().items())]
    (ROOT / "constraints.txt").write_text(HEAD + "".join(lines))
