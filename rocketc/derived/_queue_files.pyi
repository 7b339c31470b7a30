"""The files of a consume queue: maps while it is in use, system calls while it is idle."""
