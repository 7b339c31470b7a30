"""Message records of the commit log: sizes, parsing, checks, encoding; for Cython only."""
