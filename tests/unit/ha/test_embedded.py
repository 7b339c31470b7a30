"""rocketc.ha.Master: its thread, its waits from any thread, and its end."""

import pickle
import threading

import pytest
from simulation.slaves import SlaveThread
from support.threads import wait_until

import rocketc
from rocketc.errors import ClosedError
from rocketc.ha import Master, MasterSettings
from rocketc.status import PutStatus


@pytest.fixture
def connect():
    opened = []

    def one(master, **how):
        opened.append(SlaveThread(master.address, **how))
        wait_until(lambda: any(state.next_offset >= 0 for state in master.slaves()))
        return opened[-1]

    yield one
    for slave in opened:
        slave.close()


def test_a_put_waits_for_a_slave(open_store, connect):
    store = open_store()
    with Master(store, port=0) as master:
        assert master.wait(store.put("orders", b"one").end) is PutStatus.SLAVE_NOT_AVAILABLE
        one = connect(master)
        put = store.put("orders", b"two")
        assert master.wait(put.end) is PutStatus.PUT_OK
        assert one.slave.log == store.read_log(0)
        [state] = master.slaves()
        assert (state.acknowledged, state.behind, state.is_in_sync) == (put.end, 0, True)
        assert state.address.startswith("127.0.0.1:") and state.transferred == put.end
    store.put("orders", b"the store stays open")


def test_a_slave_that_does_not_acknowledge(open_store, connect):
    store = open_store()
    with Master(store, port=0, settings=MasterSettings(slave_timeout=50)) as master:
        connect(master, reports=False)
        assert master.wait(store.put("orders", b"one").end) is PutStatus.FLUSH_SLAVE_TIMEOUT


def test_many_threads(open_store, connect):
    store = open_store()
    with Master(store, port=0) as master:
        one, found = connect(master), []

        def put():
            for _ in range(50):
                found.append(master.wait(store.put("orders", bytes(100)).end))

        threads = [threading.Thread(target=put) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert found == [PutStatus.PUT_OK] * 200
    assert one.slave.log == store.read_log(0)


def test_its_end(open_store):
    store = open_store()
    master = Master(store, port=0)
    for use in (lambda: master.address, lambda: master.wait(0), master.slaves):
        with pytest.raises(ClosedError, match="not started, or it is closed"):
            use()
    assert repr(master) == "<rocketc.ha.Master closed>"
    for _ in range(2):
        master.start()
        master.start()
        assert repr(master) == f"<rocketc.ha.Master {master.address}>"
        master.close()
        master.close()
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(master)


def test_errors_of_the_start(open_store):
    store = open_store()
    with Master(store, port=0) as master:
        taken = int(master.address.rpartition(":")[2])
        with pytest.raises(OSError, match="address already in use"):
            Master(store, port=taken).start()
    with (
        rocketc.open(store.path, read_only=True) as reader,
        pytest.raises(ValueError, match="open for reading only; a master needs one that is written"),
    ):
        Master(reader, port=0).start()


def test_a_store_that_is_closed_first(open_store, connect):
    store = open_store()
    with Master(store, port=0) as master:
        one = connect(master)
        store.put("orders", b"one")
        store.close()
        wait_until(lambda: one.slave.ended)
        with pytest.raises(ClosedError):
            store.put("orders", b"two")
