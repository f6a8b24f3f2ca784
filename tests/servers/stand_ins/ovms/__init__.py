"""OpenVINO Model Server, as its documents describe it, over a real OpenVINO.

`python -m tests.servers.stand_ins.ovms HTTP GRPC` serves on loopback. It is strict: undocumented requests are
refused. Its gRPC is that of the published messages, which `tritonclient` brings; streams are for graphs, of which it
has none; its one text model repeats its prompt.
"""
