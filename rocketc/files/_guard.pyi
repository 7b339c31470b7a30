"""Reading a file map that somebody else may cut short; all of it is for Cython."""
