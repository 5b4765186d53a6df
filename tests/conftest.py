"""For all tests."""

# pytest parses hypothesis' modules when they are first imported, at the latest in its closing summary. On CPython 3.11 a garbage
# collection of Pulumi's event loops in the midst of that ends in "AST constructor recursion depth mismatch"
# (python/cpython#106905): imported here, it is done before.
import hypothesis  # noqa: F401
