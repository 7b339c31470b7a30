"""Result codes and their conversion to exceptions; for Cython only."""
