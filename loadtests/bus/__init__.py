"""Programs of `bench_bus` that run in environments of their own.

faststream_consumer.py  a consumer with FastStream
"""
