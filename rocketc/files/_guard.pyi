"""Guarded access to a mapped file that another process may cut short; for Cython only."""
