"""`python -m tests.servers.stand_ins.tfserving CONFIG [HTTP GRPC]`: a ModelServerConfig as text, as the real one has
it, and its ports; free ones when absent.
"""

import sys
from pathlib import Path

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from tests.servers.stand_ins.tfserving import rest, rpc
from tests.servers.stand_ins.tfserving.models import Models


def main() -> None:
    config = text_format.Parse(Path(sys.argv[1]).read_text(), model_server_config_pb2.ModelServerConfig())
    models = Models()
    models.configure(config)
    http, grpc = map(int, sys.argv[2:4]) if len(sys.argv) > 2 else (0, 0)
    grpc_server, port = rpc.serve(models, grpc)
    http_server = rest.serve(models, http)
    print(f"REST on 127.0.0.1:{http_server.server_address[1]}, gRPC on 127.0.0.1:{port}", flush=True)
    try:
        http_server.serve_forever()
    finally:
        grpc_server.stop(None)


main()
