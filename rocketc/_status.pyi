"""Result codes, and the only way from them to Python exceptions; for Cython only."""
