"""The records that a read of a queue picked, copied out of the map and checked."""
