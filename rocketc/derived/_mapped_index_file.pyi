"""One file of the index of a running store. Units are added at its end; readers follow chains of units."""
