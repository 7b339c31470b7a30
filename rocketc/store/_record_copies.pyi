"""Copying and checking the records that a read of a queue picked."""
