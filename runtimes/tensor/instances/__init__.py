"""Copies of a model, on threads or in processes, that compute one batch at a time.

placement.py       the copies that a model gets, and where each runs
copy.py            one copy: watched, and replaced if it dies or hangs
worker.py          the interface of a thread or process to its copy; jobs, also as bytes; lines that a model prints
thread.py          a worker on a thread
process.py         a worker in a process; child_process.py: that process, as the server sees it; child.py: its program
request_copy.py    a copy that receives requests whole; request_worker.py: its process
services.py        the answers to a model's questions: calls, models, metrics; calls.py: its requests to other models
frames.py          tensors as packets between the two, and memory that both see
runner.py          calls a loaded model, and checks its outputs
quantization.py    models with smaller weights, compared with the original
"""
