"""The pure parts of pipelines: no I/O, no clock, bounded work.

expressions/  a typed expression language, compiled when the configuration is loaded
"""
