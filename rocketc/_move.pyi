"""Records that get another place in the log: what depends on the place is made right in their bytes."""

from typing_extensions import Buffer

def move_records(data: Buffer, phy_offset: int, room: int) -> tuple[int, str]: ...
