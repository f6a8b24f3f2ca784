"""A handler of TorchServe that follows the options of each request, and otherwise returns its input.

Without TorchServe's own loader: a list of requests in, a list of answers out.
"""

import json
import time
from typing import Any


def handle(requests: list[dict[str, Any]] | None, context: Any) -> list[Any]:
    if requests is None:  # called once before the first request
        return []
    return [_answer(request, index, context) for index, request in enumerate(requests)]


def _answer(request: dict[str, Any], index: int, context: Any) -> Any:
    body = request.get("body", request.get("data"))
    if isinstance(body, bytes | bytearray):
        try:
            body = json.loads(bytes(body))
        except ValueError:
            context.set_response_content_type(index, "application/octet-stream")
            return bytes(body)[::-1]
    options = body if isinstance(body, dict) else {}
    if "fail" in options:
        raise RuntimeError("the handler's own words, which are no client's business")
    if "sleep" in options:
        time.sleep(options["sleep"])
    if "status" in options:
        context.set_response_status(code=options["status"], idx=index)
    if "words" in options:
        return _streamed(options, context)
    if "instances" in options:
        return {"predictions": [sum(row) for row in options["instances"]]}
    if "x" in options:
        return {"sum": [sum(row) for row in options["x"]], "version": context.manifest["model"]["modelVersion"]}
    return {"body": body, "names": sorted(request)}


def _streamed(options: dict[str, Any], context: Any) -> str:
    from ts.handler_utils.utils import send_intermediate_predict_response

    for word in options["words"]:
        send_intermediate_predict_response([word], context.request_ids, "Intermediate", 200, context)
        time.sleep(options.get("gap", 0))
    return "end"
