"""One file of the index of a running store: units added at its end, chains walked by readers."""
