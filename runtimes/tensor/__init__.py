"""The tensor runtime: models of any framework behind the Open Inference Protocol, batched dynamically.

A request passes the codec (`adapters.wire.oip`), the service, the scheduler of its model (a batcher, a sequencer or a
dispatcher of decoupled models), an instance on a thread or in a process, and a backend; its response returns the same
way.

__main__.py        the command line
api/               HTTP and gRPC, inference whichever wire a request came over, and the server process
ensembles/         models whose requests pass through other models
instances/         copies of a model on threads and in processes
backends/          one module for each framework
triton_api/        Triton's Python API, in the process of such a model
huggingface/       pipelines of Hugging Face, in the process of such a model
torchserve_api/    what handlers of TorchServe import, in the process of such a model
models/            the repository, and the versions of models in service
schedulers.py      the scheduler that a configuration selects
explanations/      the part of each feature in an answer
sequences/         requests that belong together
requests/          models that receive requests whole
scheduling/        queues and batches
drift/             inputs and outputs beside a reference, such as the training data
stores.py          repositories that are pulled from where they lie (adapters.stores)
catalogue/         small real models to start with
interfaces.py      backends, models and instances
configuration/     the configuration of a model
text_index.py      rows of large BYTES tensors, off the loop; texts.py: such tensors without an object for each element
deferred_input.py  large inputs that are padded or converted where their batch is composed
off_loop.py        work on large buffers in threads
datatypes.py       the protocol's datatypes in numpy
statistics.py      counts and times of a version
sources.py         the import of models' Python files, without cached bytecode

No two of these packages import each other.
"""
