"""replicate() with a scripted master on a real socket: where it starts, what it asks the broker, its errors."""

import threading
import time

import pytest
from unit.ha.served_master import FILE, SMALL, ServedMaster, make_log

import rocketc
from rocketc.errors import AnswerError, NotSentError, ReplicaError, StoreLockedError

COUNT = 500  # messages: some log files


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    log = make_log(tmp_path_factory.mktemp("made") / "store", COUNT)
    assert len(log) > 2 * FILE
    return log


@pytest.fixture
def master(log):
    with ServedMaster(log) as master:
        yield master


@pytest.fixture
def copy_of(tmp_path):
    """copy_of(master, **options): a copy that has all of the master's log, and is still running."""
    begun = []

    def copy(master, folder="copy", **options):
        begun.append(begin(master, tmp_path / folder, **options))
        wait(begun[-1], lambda last: last.caught_up)
        return begun[-1]

    yield copy
    for one in begun:
        one.close()


def begin(master, path, **options):
    options = {"broker": master.broker, "interval": 0.01, **options}
    return rocketc.replicate(master.address, path, **options)


def wait(copy, condition):
    end = time.monotonic() + 10.0
    for last in copy:
        if condition(last):
            return
        assert time.monotonic() < end, last


def whole_log(path):
    with rocketc.open(path, read_only=True) as store:
        at, log = store.min_phy_offset, b""
        while block := store.read_raw(at, 1 << 20):
            at, log = at + len(block), log + block
    return log


def fails(master, path, kind, text, **options):
    with begin(master, path, **options) as copy, pytest.raises(kind, match=text) as found:
        wait(copy, lambda last: False)
    return found.value


# ---------------------------------------------------------------------------------------------- copying


def test_a_copy_from_the_start_can_be_read_meanwhile(master, log, copy_of, tmp_path):
    copy = copy_of(master, start="start")
    assert (copy.last.phy_offset, copy.last.lag, copy.last.received_bytes) == (len(log), 0, len(log) - 1)
    assert (copy.last.is_connected, copy.last.error, copy.notes) == (True, None, [])
    assert repr(copy) == f"<rocketc.Replication of {copy.master}, up to {len(log)}>"
    assert [message.body for message in rocketc.scan(tmp_path / "copy")] == [b"%05d" % n * 40 for n in range(COUNT)]
    copy.store.wait_dispatched()
    assert copy.store.get("orders", 0, 7).messages[0].body == b"00007" * 40
    assert copy.store.query("orders", "k9").messages[0].body == b"00009" * 40
    with pytest.raises(rocketc.RocketcError):
        copy.store.put("orders", b"own")
    copy.close()
    assert repr(copy).endswith(f", up to {len(log)}, closed>")
    assert whole_log(tmp_path / "copy") == log
    assert rocketc.verify(tmp_path / "copy").is_whole


def test_a_new_copy_begins_at_the_last_file(master, log, copy_of):
    copy = copy_of(master)
    assert copy.last.min_phy_offset == len(log) - len(log) % FILE
    assert whole_log(copy.store.path) == log[copy.last.min_phy_offset :]


def test_a_new_copy_begins_at_an_offset(master, log, copy_of):
    copy = copy_of(master, start=FILE)
    assert (copy.last.min_phy_offset, copy.last.phy_offset) == (FILE, len(log))


def test_a_copy_begins_where_a_cleaned_master_begins(log, copy_of):
    with ServedMaster(log, start=FILE) as master:
        assert copy_of(master, start="start").last.min_phy_offset == FILE


def test_a_copy_continues(log, copy_of, tmp_path):
    middle = log.index(b"00300" * 40)
    middle = len(log[: middle - 1]) - len(log[: middle - 1]) % 1  # within a record
    with ServedMaster(log[:middle]) as master:
        copy = begin(master, tmp_path / "copy", start="start")
        wait(copy, lambda last: last.phy_offset > FILE)
        copy.close()
        before = copy.store.path
        master.later(master.grow, log[middle:])
        copy = copy_of(master, start="start")
        assert copy.notes[0].startswith("the copy exists: it continues at the physical offset ")
        assert before == copy.store.path
        assert whole_log(before) == log


@pytest.mark.parametrize("start", ["start", 0])
def test_the_copy_of_an_empty_master_waits_for_it(log, copy_of, monkeypatch, start):
    silence(monkeypatch)
    with ServedMaster(b"") as master:
        copy = copy_of(master, start=start)
        begun = time.monotonic()
        wait(copy, lambda last: time.monotonic() > begun + 0.8)  # heartbeats are enough
        assert (copy.last.phy_offset, copy.last.lag) == (0, 0)
        master.later(master.grow, log[:FILE])
        wait(copy, lambda last: last.phy_offset == FILE)


def test_a_copy_acknowledges_only_if_it_is_asked_to(master, log, copy_of):
    copy_of(master, start="start")
    assert {offset for _, offset in master.reports} == {1}
    copy_of(master, "other", start="start", acknowledge=True)
    assert max(offset for _, offset in master.reports) > 1


def test_another_thread_ends_the_copy(tmp_path):
    copy = rocketc.replicate("127.0.0.1:1", tmp_path / "copy", mapped_file_size=FILE, interval=60.0)
    timer = threading.Timer(0.1, copy.close)
    timer.start()
    assert list(copy) == []
    timer.join()


def test_progress_as_json(master, copy_of, log):
    found = copy_of(master, start="start").last.to_dict()
    assert (found["phyOffset"], found["masterPhyOffset"], found["lag"]) == (len(log), len(log), 0)
    assert (found["state"], found["caughtUp"], found["error"]) == ("transferring", True, None)


@pytest.mark.parametrize("has_broker", [True, False])
def test_a_copy_that_is_ahead_has_not_caught_up(log, copy_of, tmp_path, has_broker):
    """`--then verify` must not end well with a master that has less than the copy, or another log."""
    with ServedMaster(log) as master:
        copy_of(master, start="start").close()
    with ServedMaster(log[:FILE]) as behind:
        behind.refuses = not has_broker
        with begin(behind, tmp_path / "copy") as copy:
            wait(copy, lambda last: last.is_connected)
            end = time.monotonic() + 0.5
            for last in copy:
                assert not last.caught_up
                if time.monotonic() > end:
                    break


def test_the_end_is_caught_up_without_a_broker(master, log, tmp_path):
    master.refuses = True
    with begin(master, tmp_path / "copy", mapped_file_size=FILE) as copy:
        assert len(copy.notes) == 1 and "no permission" in copy.notes[0]
        wait(copy, lambda last: last.caught_up)  # by a heartbeat
        assert (copy.last.lag, copy.last.phy_offset) == (None, len(log))


# ---------------------------------------------------------------------------------------------- the end


def test_the_iterator_ends_with_close(master, copy_of):
    copy = copy_of(master)
    copy.close()
    assert list(copy) == []


def test_a_copy_is_written_by_one_process(master, copy_of, tmp_path):
    copy_of(master)
    with pytest.raises(StoreLockedError):
        begin(master, tmp_path / "copy")


def test_a_master_that_is_not_reached_is_tried_again(tmp_path):
    with rocketc.replicate("127.0.0.1:1", tmp_path / "copy", mapped_file_size=FILE, interval=0.01) as copy:
        wait(copy, lambda last: last.error is not None)
        assert "127.0.0.1:0" in copy.notes[0] and not copy.last.is_connected


# ---------------------------------------------------------------------------------------------- what does not fit


def test_another_log(master, log, tmp_path):
    make_log(tmp_path / "copy", 100)
    with rocketc.open(tmp_path / "copy", **SMALL) as store:
        end = store.max_phy_offset
    error = fails(master, tmp_path / "copy", ReplicaError, "the master has another log: it differs from ours from")
    assert error.reason == "differs" and error.phy_offset < 200
    assert len(whole_log(tmp_path / "copy")) == end


def silence(monkeypatch):
    """A master is silent after 0.5 s."""
    from rocketc.ha.slave import Slave as made

    def slave(*arguments, **options):
        return made(*arguments, **{**options, "housekeeping": 0.5})

    monkeypatch.setattr("rocketc.jobs.replicate.Slave", slave)


def only_heartbeats(link, report):
    from rocketc.ha.protocol import encode_header

    def send():
        if not link.transport.is_closing():
            link.transport.write(encode_header(report, 0))
            link._timer = link._loop.call_later(0.1, send)

    send()


def test_a_master_that_is_behind(master, log, tmp_path, monkeypatch):
    silence(monkeypatch)
    with begin(master, tmp_path / "copy", start="start") as copy:
        wait(copy, lambda last: last.caught_up)
    master.log, master.answer = log[:FILE], only_heartbeats
    text = f"the master's log ends at {FILE} and the copy at {len(log)}: the master is behind us or has another log"
    assert fails(master, tmp_path / "copy", ReplicaError, text).reason == "silent"
    master.refuses = True
    fails(master, tmp_path / "copy", ReplicaError, "no bytes of its log from the physical offset")


def test_a_master_that_was_cleaned_meanwhile(master, log, tmp_path, monkeypatch):
    silence(monkeypatch)
    with begin(master, tmp_path / "copy", start="start", rate_limit=FILE) as copy:
        wait(copy, lambda last: last.phy_offset > 1000)
    master.start, master.answer = 2 * FILE, only_heartbeats
    text = f"the physical offset 1 any more: its log goes from {2 * FILE} to {len(log)}; begin a new copy"
    fails(master, tmp_path / "copy", ReplicaError, text)


def test_a_start_that_is_deleted_meanwhile(master, log, tmp_path, monkeypatch):
    silence(monkeypatch)

    def delete(link, report):
        master.start = FILE
        only_heartbeats(link, report)

    master.answer = delete
    text = f"the physical offset 1 any more: its log goes from {FILE} to {len(log)}"
    fails(master, tmp_path / "copy", ReplicaError, text, start="start")


@pytest.mark.parametrize(
    ("start", "text"), [(0, "0 any more"), (100 * FILE, rf"{100 * FILE}: its log goes from {FILE}")]
)
def test_a_start_that_the_master_does_not_have(log, start, text, tmp_path):
    with ServedMaster(log, start=FILE) as master, pytest.raises(ReplicaError, match=text):
        begin(master, tmp_path / "copy", start=start)
    assert not (tmp_path / "copy").exists()


def test_files_of_another_size(master, tmp_path):
    text = f"the master's log file ends at the physical offset {FILE}, ours at {2 * FILE}"
    fails(master, tmp_path / "copy", ReplicaError, text, start="start", mapped_file_size=2 * FILE)
    text = f"the master's log file continues at the physical offset {FILE // 2}, where ours ends"
    fails(master, tmp_path / "other", ReplicaError, text, start="start", mapped_file_size=FILE // 2)
    make_log(tmp_path / "small", 10, mapped_file_size_commit_log=FILE // 2)
    with pytest.raises(ReplicaError, match=f"of this copy have {FILE // 2} bytes, those of the master {FILE}: begin"):
        begin(master, tmp_path / "small")


def test_a_damaged_record_of_the_master(master, log, tmp_path):
    """All records before it are copied."""
    at = log.index(b"00300" * 40)
    master.log = log[:at] + b"?" + log[at + 1 :]
    error = fails(
        master, tmp_path / "copy", ReplicaError, "damaged record .*: bad_body_crc; verify the log", start="start"
    )
    assert (error.reason, error.phy_offset) == ("damaged", len(whole_log(tmp_path / "copy")))
    assert len(list(rocketc.scan(tmp_path / "copy"))) == 300


# ---------------------------------------------------------------------------------------------- arguments, the broker


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"start": "end"}, "start: expected 'start' or a physical offset, got 'end'"),
        ({"start": -1}, "got -1"),
        ({"start": True}, "got True"),
        ({"start": 1}, f"start 1: no file of the master begins there; its files have {FILE} bytes"),
        ({"rate_limit": 0}, "rate_limit must be at least 1 byte per second, not 0"),
        ({"broker": "nowhere"}, "'nowhere' is not an address"),
    ],
)
def test_wrong_arguments(master, tmp_path, options, text):
    with pytest.raises(ValueError, match=text):
        begin(master, tmp_path / "copy", **options)


def test_the_start_needs_the_broker(master, tmp_path):
    master.refuses = True
    with pytest.raises(AnswerError, match="no permission"):
        begin(master, tmp_path / "copy", start="start", mapped_file_size=FILE)
    with pytest.raises(NotSentError, match=r"127\.0\.0\.1:1: no connection"):
        begin(master, tmp_path / "copy", start="start", mapped_file_size=FILE, broker="127.0.0.1:1")


def test_a_broker_that_has_just_started_is_asked_again(master, log, copy_of, tmp_path):
    master.faults = 3
    with copy_of(master, start="start") as copy:  # while it runs, it asks the broker
        assert copy.last.phy_offset == len(log)
    master.faults = 4
    with pytest.raises(AnswerError, match="NoSuchElementException"):
        begin(master, tmp_path / "other", start="start")


@pytest.mark.parametrize("settings", [{"mappedFileSizeCommitLog": "much"}, {"slaveTimeout": ""}])
def test_settings_that_are_not_numbers(log, settings, tmp_path):
    with ServedMaster(log, **settings) as master, begin(master, tmp_path / "copy", mapped_file_size=FILE) as copy:
        assert "the broker's settings cannot be read" in copy.notes[0]


def test_the_old_name_of_the_file_size(log, copy_of):
    with ServedMaster(log, mapedFileSizeCommitLog=FILE) as master:
        del master.settings["mappedFileSizeCommitLog"]
        assert copy_of(master, start="start").last.phy_offset == len(log)


def test_a_guessed_broker_of_another_master_is_not_believed(log, tmp_path, monkeypatch):
    with ServedMaster(log, haListenPort=7) as master:
        monkeypatch.setattr("rocketc.jobs.replicate.broker_of", lambda address: master.broker)
        with begin(master, tmp_path / "copy", broker=None, mapped_file_size=FILE) as copy:
            assert f"its HA service does not listen on port {master.port}" in copy.notes[0]
            assert copy.last.lag is None
