"""Copies of a model, on threads or in processes, that compute one batch at a time.

placement.py       the copies that a model gets, and where each runs
copy.py            one copy: watched, and replaced if it dies or hangs
worker.py          the interface of a thread or process to its copy
thread.py          a worker on a thread
process.py         a worker in a process; child_process.py: that process, as the server sees it; child.py: its program
request_copy.py    a copy that receives requests whole; request_worker.py: its process
frames.py          tensors as packets between the two; arena.py: memory that both see
order.py           configurations and jobs as bytes
runner.py          calls a loaded model; outputs.py: checks its outputs
quantization.py    models with smaller weights, compared with the original
memory.py          the memory of a process
model_log.py       lines that a model prints, in the log
"""
