"""The computation of a step in torch, which is the reference for the other executors.

encoders/            models that attend to a whole text at once
embedding_config.py  how a model's vectors are made
classifier.py        the head of a classifier; classifier_config.py: its shape
llama.py             decoders, all in the manner of Llama; layers.py: a layer's weights
split.py             the part of a decoder that one of several processes computes
lora.py              adapters of low rank, and what they add to a product
experts.py           mixtures of experts; activations.py: what an MLP does between its matrices
attention.py         attention over pages, and the pages
latents/             attention to latents, as DeepSeek has it
recurrent/           layers with a state in the place of attention or beside it
gemma/               what Gemma 3n and 4 add
short_conv.py        layers with a convolution in the place of attention
hugging_face.py      the shape of a model from its config.json
families.py          the families of decoders, one row for each; family_features.py: what is special in them;
                     family.py: a row
searched.py          layers that a search has made different
tensor_names.py      the names of a family's tensors in files
rope.py              rotary positions
model_config.py      the shape of a model; shapes/: of its parts
matrix.py            a weight matrix, whole or quantized at load
"""
