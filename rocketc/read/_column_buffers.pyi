"""The memory of a batch; for Cython only."""
