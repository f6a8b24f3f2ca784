"""`ts.context`: what a handler sees of its model, and of the requests of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class RequestProcessor:
    """The headers of one request, and those of its answer."""

    def __init__(self, request_header: Mapping[str, Any]) -> None:
        self._headers = dict(request_header)
        self._by_lower = {name.lower(): value for name, value in request_header.items()}
        self._status: tuple[int, str | None] = (200, None)
        self._answered: dict[str, str] = {}

    def get_request_property(self, key: str) -> Any:
        """A header in any spelling; the content type of a part of a form, by the name of the part."""
        return self._headers.get(key, self._by_lower.get(key.lower()))

    def get_request_properties(self) -> dict[str, Any]:
        return self._headers

    def report_status(self, code: int, reason_phrase: str | None = None) -> None:
        self._status = code, reason_phrase

    def get_response_status_code(self) -> int:
        return self._status[0]

    def get_response_status_phrase(self) -> str | None:
        return self._status[1]

    def add_response_property(self, key: str, value: str) -> None:
        self._answered[key] = value

    def get_response_headers(self) -> dict[str, str]:
        return self._answered

    def get_response_header(self, key: str) -> str | None:
        return self._answered.get(key)


class HandlerMetrics:
    """The metrics of handlers. Nothing reads them: the runtime measures requests and batches itself."""

    def add_counter(self, name: str, value: float = 1, idx: Any = None, dimensions: Any = None) -> None:
        return

    def add_time(self, name: str, value: float, idx: Any = None, unit: str = "ms", dimensions: Any = None) -> None:
        return

    def add_size(self, name: str, value: float, idx: Any = None, unit: str = "MB", dimensions: Any = None) -> None:
        return

    def add_percent(self, name: str, value: float, idx: Any = None, dimensions: Any = None) -> None:
        return

    def add_error(self, name: str, value: Any, dimensions: Any = None) -> None:
        return

    def add_metric(self, *_: Any, **__: Any) -> None:
        return


class Context:
    """What `initialize` and `handle` get."""

    def __init__(
        self,
        model_name: str,
        model_dir: str,
        manifest: Mapping[str, Any],
        batch_size: int,
        gpu: int | None,
        model_yaml_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.model_name = model_name
        self.manifest = manifest
        self.system_properties = {
            "model_dir": model_dir,
            "gpu_id": gpu,
            "batch_size": batch_size,
            "server_name": "Headrace",
            "server_version": "1",
            "limit_max_image_pixels": True,
        }
        self.request_ids: dict[int, str] | None = None
        self.request_processor: Sequence[RequestProcessor] = ()
        self.metrics = HandlerMetrics()
        self.model_yaml_config = model_yaml_config or {}
        self.stopping_criteria = None

    def get_request_id(self, idx: int = 0) -> str | None:
        return None if self.request_ids is None else self.request_ids.get(idx)

    def get_request_header(self, idx: int, key: str) -> Any:
        return self.request_processor[idx].get_request_property(key)

    def get_all_request_header(self, idx: int) -> dict[str, Any]:
        return self.request_processor[idx].get_request_properties()

    def set_response_content_type(self, idx: int, value: str) -> None:
        self.set_response_header(idx, "content-type", value)

    def get_response_content_type(self, idx: int) -> str | None:
        return self.get_response_headers(idx).get("content-type")

    def get_response_status(self, idx: int) -> tuple[int, str | None]:
        request = self.request_processor[idx]
        return request.get_response_status_code(), request.get_response_status_phrase()

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        self.request_processor[idx].report_status(code, reason_phrase=phrase)

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        for request in self.request_processor:
            request.report_status(code, reason_phrase=phrase)

    def get_response_headers(self, idx: int) -> dict[str, str]:
        return self.request_processor[idx].get_response_headers()

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        self.request_processor[idx].add_response_property(key, value)
