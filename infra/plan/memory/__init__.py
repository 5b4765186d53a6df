"""What a model takes of a GPU, and what is left for its KV cache."""
