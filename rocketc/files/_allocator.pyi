"""New files made ready off the put path."""
