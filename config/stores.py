"""The addresses of model repositories: a folder, or a place from which its files are pulled.

The configuration checks an address, and the runtime that pulls it reads its parts.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

_ARCHIVES: Final[Mapping[str, Literal["tar", "zip"]]] = {
    ".tar.gz": "tar", ".tgz": "tar", ".tar.bz2": "tar", ".tar.xz": "tar", ".tar.zst": "tar", ".tar": "tar",
    ".zip": "zip",
}  # fmt: skip
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
_BUCKETS: Final = ("s3", "gs", "az")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,221}")
_HUB = re.compile(r"/([\w.-]{1,96})(?:@([^/@]{1,255}))?(?:/(.*))?")
_IMAGE = re.compile(r"/([a-z0-9]+(?:[._/-]+[a-z0-9]+)*)(?::([\w][\w.-]{0,127}))?(?:@(sha256:[0-9a-fA-F]{64}))?")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_SHA256 = re.compile(r"sha256=([0-9a-fA-F]{64})")
FORMS: Final[Mapping[str, str]] = {
    "file": "file:///FOLDER or file:///PATH.tar.gz",
    "http": "http://HOST/PATH.tar.gz",
    "https": "https://HOST/PATH.tar.gz",
    "s3": "s3://BUCKET/FOLDER",
    "gs": "gs://BUCKET/FOLDER",
    "az": "az://CONTAINER/FOLDER",
    "hf": "hf://ORG/NAME, hf://ORG/NAME@REVISION or hf://ORG/NAME/FOLDER",
    "oci": "oci://REGISTRY/NAME:TAG or oci://REGISTRY/NAME@sha256:HEX",
}
"""The form of an address of each scheme."""


class StoreAddress(NamedTuple):
    """The parts of an address that is pulled."""

    scheme: str
    text: str
    """The whole address, as it was written."""
    name: str
    """The name of the model, if the place has one model and no folders of models."""
    url: str = ""
    path: str = ""
    """The path of an archive on the disk, or that of a folder or file in a bucket or a project of the hub."""
    bucket: str = ""
    project: str = ""
    """`ORG/NAME` of a project of the hub, or the name of an image."""
    revision: str = ""
    """A branch, tag or commit; of an image, a tag or digest."""
    host: str = ""
    """The registry of an image, as in its logins."""
    archive: Literal["", "tar", "zip"] = ""
    digest: str = ""
    """`sha256:HEX` that an archive must have; empty if the address has none."""

    @property
    def label(self) -> str:
        """The address for the log and for clients: a query may have a signature."""
        return self.text.partition("?")[0].partition("#")[0]


def folder_of(text: str) -> Path | None:
    """The folder of an address that is served where it is; None for one that is pulled. Raises `ValueError`."""
    match = _SCHEME.match(text)
    if match is None:
        return Path(text)
    parts = _split(text)
    if match[1].lower() != "file" or _archive(parts.path):
        address_of(text)
        return None
    if parts.fragment:
        raise ValueError("only an archive has a digest")
    return _path(parts)


def address_of(text: str) -> StoreAddress:
    """The parts of an address that is pulled. Raises `ValueError` for any other text."""
    parts = _split(text)
    scheme = parts.scheme
    if scheme not in FORMS:
        raise ValueError(f"repositories have the schemes {', '.join(FORMS)}, and not {scheme[:32]!r}")
    if scheme == "hf":
        return _of_hub(text, parts)
    if scheme == "oci":
        return _of_registry(text, parts)
    if "@" in parts.netloc:
        raise ValueError("an address has no user name and no password: write a credential")
    ending = _archive(parts.path)
    if scheme in _BUCKETS:
        return _in_bucket(text, parts, ending)
    if not ending:
        raise ValueError(f"expected {FORMS[scheme]}: the endings of archives are {', '.join(_ARCHIVES)}")
    digest = _digest(parts.fragment)
    name = unquote(parts.path).rpartition("/")[2].removesuffix(ending)
    if scheme == "file":
        path = str(_path(parts))
        return StoreAddress(scheme, text, name, path=path, archive=_ARCHIVES[ending], digest=digest)
    if not parts.hostname:
        raise ValueError(f"expected {FORMS[scheme]}")
    url = text.partition("#")[0]
    return StoreAddress(scheme, text, name, url=url, archive=_ARCHIVES[ending], digest=digest)


def _in_bucket(text: str, parts: SplitResult, ending: str) -> StoreAddress:
    path = _inner_path(parts.path)
    if _BUCKET.fullmatch(parts.netloc) is None or parts.query or (parts.fragment and not ending):
        raise ValueError(f"expected {FORMS[parts.scheme]} or {FORMS[parts.scheme]}.tar.gz")
    name = path.rpartition("/")[2].removesuffix(ending) or parts.netloc
    kind: Literal["", "tar", "zip"] = _ARCHIVES[ending] if ending else ""
    digest = _digest(parts.fragment)
    return StoreAddress(parts.scheme, text, name, path=path, bucket=parts.netloc, archive=kind, digest=digest)


def _of_hub(text: str, parts: SplitResult) -> StoreAddress:
    match = _HUB.fullmatch(parts.path)
    if match is None or re.fullmatch(r"[\w.-]{1,96}", parts.netloc) is None or parts.query or parts.fragment:
        raise ValueError(f"expected {FORMS['hf']}")
    revision, path = unquote(match[2] or "main"), _inner_path(match[3] or "")
    project = f"{text.partition('://')[2].partition('/')[0]}/{match[1]}"
    return StoreAddress("hf", text, match[1], path=path, project=project, revision=revision)


def _of_registry(text: str, parts: SplitResult) -> StoreAddress:
    match = _IMAGE.fullmatch(parts.path)
    if match is None or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(f"expected {FORMS['oci']}")
    host, image = parts.netloc, match[1]
    if host in ("docker.io", "index.docker.io"):
        host, image = "registry-1.docker.io", image if "/" in image else f"library/{image}"
    scheme = "http" if parts.hostname in _LOOPBACK else "https"
    revision = (match[3] or match[2] or "latest").replace("SHA256", "sha256")
    name = image.rpartition("/")[2]
    login = "https://index.docker.io/v1/" if host == "registry-1.docker.io" else host
    return StoreAddress(
        "oci", text, name, url=f"{scheme}://{host}/v2/{image}", project=image, revision=revision, host=login
    )


def _inner_path(path: str) -> str:
    """The path of a folder or file in a bucket or project. Raises `ValueError`."""
    inner = unquote(path).strip("/")
    if inner and any(part in ("", ".", "..") for part in inner.split("/")):
        raise ValueError("a path within a place has no empty part, no . and no ..")
    return inner


def check_repository(text: str) -> str:
    """Return the address of a repository. Raises `ValueError` for one that cannot be read."""
    folder_of(text)
    return text


def _split(text: str) -> SplitResult:
    if not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("an address has no spaces, backslashes or control characters: write %20 for a space")
    parts = urlsplit(text)
    _ = parts.port  # raises a ValueError that is an explanation
    return parts


def _archive(path: str) -> str:
    """The ending of an archive; empty for any other path."""
    return next((ending for ending in _ARCHIVES if path.lower().endswith(ending)), "")


def _path(parts: SplitResult) -> Path:
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or parts.query or "\0" in path:
        raise ValueError(f"expected {FORMS['file']}, or a path without file://")
    return Path(path)


def _digest(fragment: str) -> str:
    if not fragment:
        return ""
    match = _SHA256.fullmatch(fragment)
    if match is None:
        raise ValueError("expected #sha256= and 64 hexadecimal digits, or no #")
    return f"sha256:{match[1].lower()}"
