"""The LLM engine: one model behind OpenAI's API, with paged attention, continuous batching and a prefix cache.

One chat, from the socket to its tokens and back:

1. api/server.py routes it, api/request_decoding.py decodes the body, and text/chat_template.py renders the prompt.
2. api/submission.py makes a sequence for each answer, and engine/async_engine.py passes it to the engine's thread.
3. engine/core.py repeats a step: engine/scheduler.py chooses the tokens of the batch and their pages in
   engine/block_manager.py, and engine/model_runner.py computes them.
4. The executor of the machine computes the layers: native/executor.py in C++, cuda/executor.py in Triton,
   engine/executor.py in torch. engine/sampler.py draws the next tokens.
5. api/choice.py turns tokens into text on the event loop, api/generation.py merges the answers of a request, and
   api/answers.py writes the body or its events.

__main__.py   the command line
quantizer.py  the command that writes a model with fewer bits; perplexity.py: how well a model predicts a text
calibration/  weights of fewer bits that calibration texts have a say in
service.py    the process: listen, load, serve, drain
api/          HTTP: requests to sequences, tokens to responses
grammar/      constraints on the text of an answer
text/         tokenizers, chat templates, and the parts of an answer's text
engine/       the scheduler, the pages of the KV cache, the sampler, and the engine's thread
cuda/         the step on a GPU
vision/       pictures: from a file to the rows that take the place of embeddings
weights/      model files: where they come from and how they are read
native/       the step in C++
memory.py     how much memory there is, and how many pages of the KV cache it holds
model/        the model in torch, which is the reference for the other executors
sequence.py   the state of an answer, and the data of a step; sampling_params.py: how its tokens are chosen;
              picture_rows.py: what its pictures put in the place of embeddings;
              states.py: where its recurrent state is; standing.py: its claim on the engine

Each part imports only parts that are further down in this list.
"""
