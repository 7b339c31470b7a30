"""Result codes and their one way into Python; all of it is for Cython."""
