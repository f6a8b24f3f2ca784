"""The SQS of moto with one request at a time: the threads of moto change a queue without a lock.

A poll that waits lets other requests through, and looks for messages that are visible again 20 times a second.
Messages of a FIFO group that are visible again at the same time are delivered in their order: moto would deliver the
last of them first.
"""

import sys
from collections.abc import Iterable
from io import BytesIO
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sqs.models import Queue
from werkzeug.serving import WSGIRequestHandler, run_simple

LOOK = 0.05
turn = Lock()
moto = DomainDispatcherApplication(create_backend_app)


class Quiet(WSGIRequestHandler):
    """Logs errors only."""

    def log_request(self, *_: Any) -> None:
        """Nothing for each request."""


def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """A request whose body has arrived."""
    environ["wsgi.input"] = BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
    with turn:
        return list(moto(environ, start_response))


def wait_for_messages(queue: Any, timeout: float) -> None:
    """Wait until a message arrives, for a short time."""
    with queue._messages_lock:
        turn.release()
        queue._messages_lock.wait(min(LOOK, timeout))
    turn.acquire()


def visible_messages(queue: Any) -> list[Any]:
    """The messages that can be received. They block their groups no longer."""
    visible = [message for message in queue._messages if message.visible and not message.delayed]
    queue._pending_messages.difference_update(visible)
    return visible


Queue.wait_for_messages = wait_for_messages
Queue.messages = property(visible_messages)
run_simple("127.0.0.1", int(sys.argv[1]), serve, threaded=True, request_handler=Quiet)
