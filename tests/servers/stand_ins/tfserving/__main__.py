"""`python -m tests.servers.stand_ins.tfserving CONFIG`: a ModelServerConfig as text, as the real one has it."""

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
    grpc_server, port = rpc.serve(models)
    http_server = rest.serve(models)
    print(f"REST on 127.0.0.1:{http_server.server_address[1]}, gRPC on 127.0.0.1:{port}", flush=True)
    try:
        http_server.serve_forever()
    finally:
        grpc_server.stop(None)


main()
