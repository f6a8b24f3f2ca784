"""The kind of a file whose content does not match its name."""

from pathlib import Path

_BEGINNINGS = {
    b"version https://git-lfs": "a Git LFS pointer to the file: fetch the file itself with `git lfs pull`",
    b"GGUF": "a GGUF file",
    b"PK\x03\x04": "a zip archive, perhaps weights that PyTorch pickled",
    b"<": "a web page",
    b"\x1f\x8b": "a gzip archive: unpack it",
}


def description(path: Path) -> str:
    """A clause for an error: `is empty`, `is a web page`, or that the kind of file is unknown."""
    with path.open("rb") as file:
        beginning = file.read(64)
    if not beginning:
        return "is empty"
    for magic, kind in _BEGINNINGS.items():
        if beginning.lstrip().startswith(magic):
            return f"is {kind}"
    return f"begins with {beginning[:8]!r}"
