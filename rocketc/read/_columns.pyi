"""Records -> Arrow buffers; all of it is for Cython."""
