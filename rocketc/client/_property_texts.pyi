"""The properties of a message that a program sends."""
