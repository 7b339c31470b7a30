"""A record in the map of the log, by its physical offset."""
