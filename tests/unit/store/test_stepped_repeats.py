"""A store without threads: any calls do the same twice, and so does the recovery."""

import os

import pytest
from crash import remains
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.store.stepped import HOUR, MODES, Times, files_of, open_stepped, put_some


def test_recovery_of_an_unclosed_store_is_repeatable(tmp_path):
    found = []
    for name in ("one", "two"):
        times = Times()
        store = open_stepped(tmp_path / name, times)
        put_some(store, times)
        pid = os.fork()
        if pid == 0:  # the parent holds the lock on the file; a copy at another path has the same bytes
            os._exit(0)
        os.waitpid(pid, 0)
        files = files_of(tmp_path / name)
        store.close()
        for path, data in files.items():
            copy = tmp_path / f"{name}-copy" / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)
        with open_stepped(tmp_path / f"{name}-copy", times) as store:
            put_some(store, times)
        found.append(files_of(tmp_path / f"{name}-copy"))
    assert found[0] == found[1]


CALLS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.sampled_from(["a", "b"]), st.integers(0, 6000), st.sampled_from([None, "k", "k l"])
        ),
        st.tuples(st.just("async"), st.integers(0, 50)),
        st.tuples(st.just("many"), st.integers(1, 40), st.integers(0, 900)),
        st.tuples(st.just("go"), st.one_of(st.integers(-5000, 20_000), st.integers(HOUR, 40 * HOUR))),
        st.tuples(st.just("step")),
        st.tuples(st.just("get"), st.sampled_from(["a", "b", "many"])),
        st.tuples(st.just("clean")),
        st.tuples(st.just("delete"), st.sampled_from(["a", "b"])),
        st.tuples(st.just("flush")),
        st.tuples(st.just("reopen")),
    ),
    max_size=40,
)


def play(root, calls, mode):
    """Return the results of the calls, and the bytes of the files before and after the store is closed."""
    times = Times()
    said = []

    def start():
        return open_stepped(root, times, clean_resource_interval=10_000, file_reserved_time=5, **MODES[mode])

    store = start()
    for what, *args in calls:
        if what == "put":
            r = store.put(args[0], bytes(args[1]), keys=args[2])
            said.append((r.phy_offset, r.queue_offset, r.store_timestamp, r.status))
        elif what == "async":
            store.put_async("a", bytes(args[0]))
        elif what == "many":
            said.append(store.put_many("many", [bytes(args[1])] * args[0], keys="m").end)
        elif what == "go":
            times.now += args[0]
        elif what == "step":
            said.append(store.step())
        elif what == "get":
            said.append([message.phy_offset for message in store.get(args[0], 0, store.min_offset(args[0]))])
        elif what == "clean":
            said.append(store.clean().log_files)
        elif what == "delete":
            said.append(store.delete_topics(args[0]))
        elif what == "flush":
            said.append(store.flush())
        elif what == "reopen":
            store.close()
            store = start()
        said.append((store.flushed_phy_offset, store.dispatched_phy_offset, store.min_phy_offset))
    files = files_of(root)
    files.pop("abort")
    store.close()
    return said, files, files_of(root)


def same_twice(calls, mode):
    with remains.memory() as folder:
        one, two = (play(os.path.join(folder, name), calls, mode) for name in ("one", "two"))
        assert one == two


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=4, deadline=None)
@given(calls=CALLS)
def test_any_calls_do_the_same_twice(mode, calls):
    same_twice(calls, mode)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=1000, deadline=None)
@given(calls=CALLS)
def test_many_calls_do_the_same_twice(mode, calls):
    same_twice(calls, mode)
