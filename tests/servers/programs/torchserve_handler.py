"""A handler of TorchServe that does what each request asks of it, and otherwise tells what it was given.

Without TorchServe's own loader: a list of requests in, a list of answers out.
"""

import json
import time
from typing import Any


def handle(requests: list[dict[str, Any]] | None, context: Any) -> list[Any]:
    if requests is None:  # asked once before the first request
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
    asked = body if isinstance(body, dict) else {}
    if "fail" in asked:
        raise RuntimeError("the handler's own words, which are no client's business")
    if "sleep" in asked:
        time.sleep(asked["sleep"])
    if "status" in asked:
        context.set_response_status(code=asked["status"], idx=index)
    if "words" in asked:
        return _streamed(asked, context)
    if "instances" in asked:
        return {"predictions": [sum(row) for row in asked["instances"]]}
    if "x" in asked:
        return {"sum": [sum(row) for row in asked["x"]], "version": context.manifest["model"]["modelVersion"]}
    return {"body": body, "names": sorted(request)}


def _streamed(asked: dict[str, Any], context: Any) -> str:
    from ts.handler_utils.utils import send_intermediate_predict_response

    for word in asked["words"]:
        send_intermediate_predict_response([word], context.request_ids, "Intermediate", 200, context)
        time.sleep(asked.get("gap", 0))
    return "end"
