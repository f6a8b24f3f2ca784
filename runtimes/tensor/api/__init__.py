"""The Open Inference Protocol over HTTP and gRPC, and the server process."""
