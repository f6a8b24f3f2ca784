"""OpenVINO Model Server's list of models."""

import msgspec

from adapters.wire import decoding


class _Version(msgspec.Struct):
    state: str = ""


class _Model(msgspec.Struct):
    model_version_status: list[_Version] = []


_config = msgspec.json.Decoder(dict[str, _Model]).decode


def state_of(body: bytes, model: str) -> bool | None:
    """Whether a version of a model is ready; None if it is not served. Raises `BackendError`."""
    decoded = decoding.decode(_config, body).get(model)
    return None if decoded is None else any(version.state == "AVAILABLE" for version in decoded.model_version_status)
