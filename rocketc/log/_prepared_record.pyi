"""Checks of a prepared record before it is appended: its topic, and the properties that the store acts on."""
