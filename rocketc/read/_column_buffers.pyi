"""The memory of a batch; all of it is for Cython."""
