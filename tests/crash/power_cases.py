"""Single cases that crash.power_cut has found: `python -m crash.power_cases CASE FOLDER`, with disk.c before libc.

Each case checks a disk that holds only what must be durable.
"""

import sys
from pathlib import Path
from typing import Any

from crash import remains
from crash.disk import Disk, Event, Recorder, lay
from crash.small import SMALL
from support.store_checks import assert_answers, opened, records_of

import rocketc

FIELDS: dict[str, Any] = {**SMALL, "mapped_file_size_commit_log": 4096}
NEVER = 1 << 30  # ms


def worst(recorder: Recorder, root: Path, disk: Disk | None = None) -> Path:
    """Write the files that a power cut leaves if only durable bytes and names are on the disk.

    disk  the disk when the recording began; None: everything that existed then was durable
    """
    disk = Disk() if disk is None else disk
    for event in recorder.take():
        disk.follow(event)
    image = root.with_name("image")
    lay(disk.worst(), image)
    return image


def killed_behind(events: list[Event], name: str, root: Path) -> tuple[Path, Disk]:
    """Return the files that a process killed right after renaming a file leaves, and the disk below them."""
    renamed = next(n for n, event in enumerate(events, 1) if event.renamed_to == name)
    disk = Disk()
    for event in events[:renamed]:
        disk.follow(event)
    left = root.with_name("killed")
    lay(disk.go_on().latest(), left)
    return left, disk


def assert_whole(image: Path, count: int) -> None:
    """The store had been closed, so recovery has nothing to repair."""
    with opened(image, **FIELDS) as one:
        assert one.told == [], one.told
        records = records_of(image)
        assert len(records) == count
        assert_answers(one.store, records)


def killed(recorder: Recorder, disk: Disk, root: Path) -> Path:
    """Write the files that the process would leave if it was killed now, and watch what the next process does."""
    for event in recorder.take():
        disk.follow(event)
    disk.go_on()
    left = root.with_name("killed")
    lay(disk.latest(), left)
    recorder.watch(left)
    return left


def queues_of_a_new_store(recorder: Recorder, root: Path) -> None:
    """The folders of consume queues, and the names of their files."""
    recorder.watch(root)
    with rocketc.open(root, **FIELDS) as store:
        for n in range(6):
            store.put(f"topic{n % 2}", b"", queue_id=n % 3, keys="k")
    assert_whole(worst(recorder, root), 6)


def queues_of_many_topics(recorder: Recorder, root: Path) -> None:
    """The names of many new files become durable together."""
    recorder.watch(root)
    with rocketc.open(root, **FIELDS) as store:
        for n in range(80):
            store.put(f"topic{n}", b"")
    assert_whole(worst(recorder, root), 80)


def names_of_index_files(recorder: Recorder, root: Path) -> None:
    """A name must not be durable before the earlier ones: a reader that finds the last file assumes that all exist."""
    recorder.watch(root)
    with rocketc.open(root, **{**FIELDS, "max_index_num": 4}) as store:
        for n in range(40):
            store.put("orders", b"", keys=f"k{n}")
    disk, before = Disk(), []
    for event in recorder.take():
        if (name := event.new_name) is not None and name.startswith("index/"):
            assert all(map(disk.is_durable, before)), name
            before.append(name)
        disk.follow(event)
    assert len(before) > 10


def units_of_a_loaded_file(recorder: Recorder, root: Path) -> None:
    """Units that are added to a file which existed when the store was opened."""
    with rocketc.open(root, **FIELDS) as store:
        store.put("orders", b"")
    recorder.watch(root)
    with rocketc.open(root, **FIELDS) as store:
        store.put("orders", b"")
    assert_whole(worst(recorder, root), 2)


def a_unit_that_was_cleared(recorder: Recorder, root: Path) -> None:
    """The unit of a lost message must be cleared durably: its physical offset is used by another message later."""
    with rocketc.open(root, **FIELDS) as store:
        store.put("orders", b"")
        end = store.put("audit", b"").phy_offset
        store.wait_dispatched()
        files = remains.take(root)
    remains.lay(remains.zeroed(files, end), root)
    queue = "consumequeue/audit/0/%020d" % 0
    assert any((root / queue).read_bytes())
    recorder.watch(root)
    with rocketc.open(root, **FIELDS):
        image = worst(recorder, root)
    assert not any((image / queue).read_bytes())


def queues_that_a_killed_process_made(recorder: Recorder, root: Path) -> None:
    """Their files existed for the next process, so it did not create them and never synced their names."""
    disk = Disk()
    recorder.watch(root)
    with rocketc.open(root, **FIELDS) as store:
        for n in range(6):
            store.put(f"topic{n % 2}", b"", queue_id=n % 3, keys="k")
        store.wait_dispatched()
        left = killed(recorder, disk, root)
    rocketc.open(left, **FIELDS).close()
    assert_whole(worst(recorder, root, disk), 6)


def filled(root: Path, **fields: Any) -> Any:
    """An open store with three log files; the messages of `old` are all in the first one."""
    store = rocketc.open(root, **{**FIELDS, "flush_interval_consume_queue": NEVER, **fields})
    store.put_many("old", [b""] * 5)
    store.put_many("orders", [bytes(1000)] * 10)
    store.wait_dispatched()
    return store


def numbers_of_messages_that_were_cleaned(recorder: Recorder, root: Path) -> None:
    """Only consume queue files that were not on the disk yet had the queue offsets, which were assigned twice."""
    recorder.watch(root)
    with filled(root) as store:
        assert store.clean(expired_ms=-1).log_files > 1
        image = worst(recorder, root)
    with rocketc.open(image, **FIELDS) as store:
        assert store.put("old", b"").queue_offset == 5
        assert store.put("orders", b"").queue_offset == 10


def names_of_queue_files_that_were_cleaned(recorder: Recorder, root: Path) -> None:
    """Files are deleted in their order, and before the checkpoint records it."""
    fields = {**FIELDS, "mapped_file_size_consume_queue": 60}
    filled(root, **fields).close()
    assert len(list((root / "consumequeue/orders/0").iterdir())) == 4
    recorder.watch(root)
    with rocketc.open(root, **fields) as store:
        store.clean(expired_ms=-1)
    disk, gone = Disk(), []
    for event in recorder.take():
        if (name := event.old_name) is not None and name.startswith("consumequeue/orders/0/"):
            assert not any(map(disk.is_durable, gone)), name
            gone.append(name)
        disk.follow(event)
    assert len(gone) > 1 and not any(map(disk.is_durable, gone))


def folders_of_topics_that_were_deleted(recorder: Recorder, root: Path) -> None:
    """The folders came back after the power cut, and the store reported their files as missing."""
    filled(root).close()
    recorder.watch(root)
    with rocketc.open(root, **FIELDS) as store:
        store.delete_topics("old")
    image = worst(recorder, root)
    assert [path.name for path in (image / "consumequeue").iterdir()] == ["orders"]
    with opened(image, **FIELDS) as one:
        assert one.told == [], one.told


def a_deletion_that_a_killed_process_noted(recorder: Recorder, root: Path) -> None:
    """The note was not durable. The next process finished the deletion, then a power cut removed the note."""
    filled(root).close()
    recorder.watch(root)
    with rocketc.open(root, **FIELDS) as store:
        store.delete_topics("old")
        events = recorder.take()
    left, disk = killed_behind(events, "config/deletedTopics.json", root)
    recorder.watch(left)
    with rocketc.open(left, **FIELDS) as store:
        assert store.queues() == [("orders", 0)]
    image = worst(recorder, root, disk)
    with rocketc.open(image, **FIELDS) as store:
        assert store.queues() == [("orders", 0)]


def positions_that_a_killed_process_wrote(recorder: Recorder, root: Path) -> None:
    """The next process found the positions, so its flush() wrote nothing, and the file's name was never synced."""
    recorder.watch(root)
    with rocketc.Queue(root, **FIELDS, position_interval=3600.0) as queue:
        queue.put(b"one")
        queue.ack(queue.get())
        queue.flush()
        events = recorder.take()
    left, disk = killed_behind(events, "config/consumerOffset.json", root)
    recorder.watch(left)
    with rocketc.Queue(left, **FIELDS, position_interval=3600.0) as queue:
        assert queue.position == 1
        queue.flush()
        image = worst(recorder, root, disk)
    with rocketc.Queue(image, **FIELDS) as queue:
        assert queue.position == 1 and queue.empty()


def a_queue_file_that_an_opening_deleted(recorder: Recorder, root: Path) -> None:
    """A killed process had not set the file's size. The queue had no other file, so no flush() synced the folder."""
    with rocketc.open(root, **FIELDS) as store:
        store.put("orders", b"one")
    folder = root / "consumequeue" / "empty" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").touch()
    (root / "abort").touch()
    recorder.watch(root)
    rocketc.open(root, **FIELDS).close()
    assert_whole(worst(recorder, root), 1)


CASES = (
    queues_of_a_new_store,
    queues_of_many_topics,
    names_of_index_files,
    units_of_a_loaded_file,
    a_unit_that_was_cleared,
    queues_that_a_killed_process_made,
    numbers_of_messages_that_were_cleaned,
    names_of_queue_files_that_were_cleaned,
    folders_of_topics_that_were_deleted,
    a_deletion_that_a_killed_process_noted,
    positions_that_a_killed_process_wrote,
    a_queue_file_that_an_opening_deleted,
)


def main() -> None:
    case, root = sys.argv[1], Path(sys.argv[2])
    root.mkdir()
    {one.__name__: one for one in CASES}[case](Recorder(), root)


if __name__ == "__main__":
    main()
