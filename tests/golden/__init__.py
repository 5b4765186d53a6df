"""Expected outputs under version control. `python -m tests.golden.update` writes them anew; the tests compare."""
