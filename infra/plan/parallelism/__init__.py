"""Splits a model over GPUs: which sizes vLLM accepts, which the machine suits, and the best of them."""
