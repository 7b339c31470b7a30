"""Prepares new files outside the put path."""
