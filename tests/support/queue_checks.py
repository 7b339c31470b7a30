"""Checks that tests of rocketc.Queue share."""

from rocketc.tables.table_file import read_table


def numbers(items):
    return [int(item) for item in items]


def take_all(consumer):
    """Take and ack all waiting messages; return their numbers."""
    return numbers(consumer.items(timeout=0))


def positions(path):
    """The table of consumer offsets of a store: {"topic@group": {queue id: offset}}."""
    table = read_table(path / "config/consumerOffset.json").data["offsetTable"]
    return {name: {int(queue): offset for queue, offset in found.items()} for name, found in table.items()}


def write_at(path, phy_offset, data):
    """Damage the first file of a store's log."""
    with open(path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(phy_offset)
        file.write(data)
