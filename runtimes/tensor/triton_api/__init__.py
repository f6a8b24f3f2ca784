"""Triton's Python API, in the process of a model: `import triton_python_backend_utils as pb_utils`.

backend_utils.py   the module that models import
loading.py         the class `TritonPythonModel`, loaded and initialized
model.py           its loop: executes requests until the server ends it
requests.py        requests to the model, and of the model to others, with their responses
responses.py       responses and their senders
tensors.py         tensors, and their memory for other libraries
configuration.py   the configuration that a model completes
telemetry.py       metrics that models define, and lines in the server's log
errors.py          errors of the API
channel.py         the connection to the server; process.py: the facts of this process
"""
