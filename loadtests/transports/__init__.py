"""Servers and clients of one echo, with each transport: programs that `loadtests.bench_transports` starts."""
