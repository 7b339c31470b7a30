"""Derived files written by the specification equal RocketMQ's own, in every golden store. No code of rocketc is used
here: other tests compare with `derived`, so `derived` needs its own proof."""

import pytest
from support import oracle, stores
from support.derived import FOLDERS, files_of, from_log, same_files, without_names

CUT = ("v497-torn", "v533-torn")  # the last record was cut off after it had been dispatched


@pytest.mark.parametrize("name", stores.NAMES)
def test_golden(golden, name):
    store = golden(name)
    records = oracle.records(oracle.walk_log(oracle.read_log(store.path / "commitlog"), crc="none"))
    found = from_log(records, store.about["config"], store.batch_topics)
    theirs = without_names(files_of(store.path, *FOLDERS))
    if name in CUT:
        assert sorted(found[0]) == sorted(theirs[0])
        assert sum(found[0][path] != theirs[0][path] for path in found[0]) == 1
        found = theirs[0], [*found[1][:-1], theirs[1][-1]]
    same_files(found, theirs)
