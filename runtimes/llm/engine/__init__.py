"""The engine: scheduler, KV cache, sampler."""
