"""Model files: their sources and their formats.

store.py             from the name of a model to a path
loader.py            weights and configuration of a Llama model
gguf_checkpoint.py   a GGUF file: its tensors; gguf_metadata.py: its fields; gguf_blocks.py: its blocks
gguf_config.py       the shape of the model in a GGUF file; gguf_hybrid.py: of recurrent layers and latents
encoder_files.py     an encoder: its shape and its tensors; gguf_encoder.py: what GGUF files call them
safetensors_files.py a Hugging Face folder; generation_config.py: the sampling that the files declare
quantized_files.py   its tensors as if nothing were quantized; quantized_layouts.py: GPTQ, AWQ, FP8 and the others
quantized_writer.py  writes such a folder
classifier_files.py  a classifier: its labels, and the functions of its logits
dense_files.py       layers between a text's vector and its client's
task_adapters.py     the tasks of Jina v3
adapter_files.py     PEFT's adapters; adapter_config.py: their settings
tensor_files.py      its files: safetensors, pickles and JSON
"""
