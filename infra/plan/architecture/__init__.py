"""What a model's config.json says that decides memory and parallelism."""
