"""The state of queues that are pulled over sockets: their pulls, a heap of their next records, and their requests."""

def encode_template(
    frame: bytes, offset: bytes, most: bytes, opaque: bytes
) -> tuple[tuple[bytes, ...], tuple[int, ...]]: ...
