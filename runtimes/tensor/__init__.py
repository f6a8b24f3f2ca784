"""The tensor runtime: models of any framework behind the Open Inference Protocol, batched dynamically.

A request passes the codec (`adapters.wire.oip`), the service, the scheduler of its model (a batcher, a sequencer or a
dispatcher of decoupled models), an instance on a thread or in a process, and a backend; its response returns the same
way.

__main__.py        the command line
api/               HTTP and gRPC, and the server process
models/            the repository, and the versions of models in service
configuration/     the configuration of a model
scheduling/        queues and batches; sequences/: requests that belong together
instances/         copies of a model on threads and in processes
backends/          one module for each framework
requests/          models that receive requests whole, and the questions that they ask the server
triton_api/        Triton's Python API, in the process of such a model
catalogue/         small real models to start with
ensembles/         models whose requests pass through other models
service.py         inference, whichever wire a request came over; nested.py: requests of models for other models
delivery.py        outputs into shared memory, or as classes: shared_memory.py, classification.py
texts.py           large BYTES tensors without an object for each element; text_index.py: their rows, off the loop
deferred_input.py  large inputs that are padded or converted where their batch is composed
off_loop.py        work on large buffers in threads
datatypes.py       the protocol's datatypes in numpy
spans.py           the spans of a traced inference
statistics.py      counts and times of a version
"""
