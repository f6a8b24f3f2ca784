"""Embeddings by models of tensors: texts to tokens, tokens to tensors, tensors to vectors."""
