"""A model as Kubernetes objects."""
