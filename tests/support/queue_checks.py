"""What tests of rocketc.Queue look at."""

from rocketc.tables.table_file import read_table


def numbers(items):
    return [int(item) for item in items]


def take_all(consumer):
    """The numbers that wait there, each acked."""
    return numbers(consumer.items(timeout=0))


def positions(path):
    """What stands in a store's table: {"topic@group": {queue id: offset}}."""
    table = read_table(path / "config/consumerOffset.json").data["offsetTable"]
    return {name: {int(queue): offset for queue, offset in found.items()} for name, found in table.items()}


def write_at(path, phy_offset, data):
    """Damage the first file of a store's log."""
    with open(path / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(phy_offset)
        file.write(data)
