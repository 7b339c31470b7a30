"""The store compared with lists and dictionaries: what queues, tags, keys and times find, after any operations."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from model.test_store_model import StoreModel, bodies, queues, topics
from support.store_checks import assert_answers, assert_files, records_of

pytestmark = pytest.mark.promise(6)

TINY = {"mapped_file_size_consume_queue": 100, "max_hash_slot_num": 4, "max_index_num": 8}
tags = st.sampled_from([None, "Aa", "BB", "C"])  # two of them have the same hash
keys = st.sampled_from([None, "Aa", "BB", "Aa k", "k l m"])


class QueuesModel(StoreModel):
    """All answers of the store agree with the records of its log. Queue offsets start again only in deleted topics."""

    def open(self) -> None:
        self.fields.update(TINY)
        super().open()
        self.answers()

    @rule(topic=topics, queue_id=queues, body=bodies, tag=tags, key=keys, back=st.sampled_from([0, 0, 0, 7]))
    def put_with_keys(self, topic: str, queue_id: int, body: bytes, tag: Any, key: Any, back: int) -> None:
        self.store._set_clock(self.clock - back)
        result = self.store.put(topic, body, queue_id=queue_id, tags=tag, keys=key)
        self.store._set_clock(self.clock)
        pairs = {name: text for name, text in (("KEYS", key), ("TAGS", tag)) if text}
        self.note(result, topic, queue_id, [(body, pairs)])

    @rule()
    def answers(self) -> None:
        self.store.flush()
        self.flushed()
        records = records_of(self.root)
        queued = [r for n, r in enumerate(records, self.gone) if n >= self.begins.get(r["topic"], 0)]
        assert_answers(self.store, records, queued=queued)
        for topic in self.begins.keys() - {r["topic"] for r in queued}:
            assert [self.store.get(topic, queue_id).messages for queue_id in (0, 1)] == [[], []]

    @rule()
    def files_follow_from_the_log(self) -> None:
        self.store.close()
        if self.gone == 0 and not self.begins:
            assert_files(self.root, TINY)
        self.open()

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.store.delete_topics(topic)
        self.begins[topic] = len(self.puts)
        self.flushed()
        self.answers()

    @rule(part=st.integers(0, 100))
    def clean(self, part: int) -> None:
        """Whole files of the log are deleted, and the files derived from them."""
        self.flush()
        assert self.store.wait_dispatched(30)
        at = self.store.min_phy_offset + part * (self.store.max_phy_offset - self.store.min_phy_offset) // 100
        self.store.delete_before(at)
        self.gone = len(self.puts) - len(records_of(self.root))
        self.flushed()
        self.answers()


TestQueuesModel = QueuesModel.TestCase
TestQueuesModel.settings = settings(max_examples=12, stateful_step_count=20)


@pytest.mark.long
@pytest.mark.timeout(1200)
class TestQueuesModelForLong(QueuesModel.TestCase):
    settings = settings(max_examples=1000, stateful_step_count=50)
