"""Convert records to Arrow buffers; for Cython only."""
