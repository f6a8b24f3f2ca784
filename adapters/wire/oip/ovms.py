"""OpenVINO Model Server's word on all its models."""

import msgspec

from adapters.errors import BackendError


class _Version(msgspec.Struct):
    state: str = ""


class _Model(msgspec.Struct):
    model_version_status: list[_Version] = []


_config = msgspec.json.Decoder(dict[str, _Model]).decode


def state_of(body: bytes, model: str) -> bool | None:
    """Whether a version of it is ready; None where it is not served. Raises `BackendError`."""
    try:
        found = _config(body).get(model)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BackendError("The upstream's answer cannot be read.", code="upstream_bad_response") from None
    return None if found is None else any(version.state == "AVAILABLE" for version in found.model_version_status)
