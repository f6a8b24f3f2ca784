"""The pure parts of pipelines: no I/O, no clock, bounded work. Their expressions are in `config.expressions`."""
