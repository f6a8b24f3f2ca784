"""Wire codecs: bytes ↔ types, no I/O. One module a protocol, shared by front, adapter and runtime."""
