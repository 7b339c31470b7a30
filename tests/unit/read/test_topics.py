"""A scan that finds nothing because its topics do not exist says so, and names the most similar topic."""

import re
import shutil
import warnings

import pytest

import rocketc
from rocketc.read.topics import known_topics, missing_text, not_among

ORDER = "no topic Order in this store; did you mean Orders?"


@pytest.fixture
def store(tmp_path):
    """The path of a store with the topics Orders and Bills."""
    with rocketc.open(tmp_path / "store", mapped_file_size_commit_log=1 << 16) as store:
        store.put("Orders", b"x", tags="T")
        store.put("Bills", b"y")
    return tmp_path / "store"


WAYS = {
    "iterate": list,
    "count": rocketc.Scan.count,
    "table": rocketc.Scan.to_arrow,
    "batches": lambda scan: list(scan.batches()),
    "export": None,
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_reading_warns(store, tmp_path, way):
    scan = rocketc.scan(store, topics="Order")
    with pytest.warns(rocketc.MissingTopicWarning) as caught:
        (WAYS[way] or (lambda scan: rocketc.export(scan, tmp_path / "made.parquet")))(scan)
    assert [str(warning.message) for warning in caught] == [ORDER]


def test_the_warning_points_to_the_caller(store):
    with pytest.warns(rocketc.MissingTopicWarning) as caught:
        for _ in rocketc.scan(store, topics="Order"):
            pass
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("topics", "text"),
    [
        (["Order", "bils"], "no topics Order, bils in this store; did you mean Orders, Bills?"),
        ("payments", "no topic payments in this store"),
        (re.compile("Ord"), "no topic /Ord/ in this store"),
    ],
)
def test_texts(store, topics, text):
    for path in (store, store / "commitlog", [store]):
        with pytest.warns(rocketc.MissingTopicWarning, match=f"^{re.escape(text)}$"):
            assert rocketc.scan(path, topics=topics, tags="T").count() == 0


def test_a_copy_of_a_log_without_queues(store):
    shutil.rmtree(store / "consumequeue")
    with pytest.warns(rocketc.MissingTopicWarning, match="^no topic Order in this store$"):
        assert list(rocketc.scan(store, topics="Order")) == []


@pytest.mark.parametrize(
    "options",
    [
        {"topics": "Orders", "tags": "U"},  # the topic exists
        {"topics": ["Order", "Bills"]},  # something was found
        {"topics": re.compile("Ord.*"), "end": 0},
        {"tags": "U"},
    ],
)
def test_no_warning(store, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rocketc.scan(store, **options).count()


def test_no_warning_for_a_part_of_a_log_or_an_empty_store(store, tmp_path):
    (tmp_path / "new" / "commitlog").mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for part in rocketc.scan(store, topics="Order").by_file():
            assert part.count() == 0
        assert rocketc.scan(store / "commitlog" / f"{0:020d}", topics="Order").count() == 0
        assert rocketc.decode(rocketc.encode("Orders", b"x"), topics="Order").count() == 0
        assert rocketc.scan(tmp_path / "new", topics="Order").count() == 0
        shutil.rmtree(store / "consumequeue")
        assert rocketc.scan(store, topics="Order", tags="U").count() == 0  # the tags may be what leaves them out


def test_topics_of_the_table_are_known(store):
    with rocketc.open(store) as opened:
        opened.create_topic("Created")
    assert {"Created", "Orders", "Bills"} <= known_topics([store])
    assert known_topics([store, store.parent]) is None
    (store / "config" / "topics.json").write_text("{broken")
    assert {"Orders", "Bills"} <= known_topics([store / "commitlog" / f"{0:020d}"])


def test_names_of_any_case_are_suggested():
    assert missing_text(["ORDERS"], {"Orders"}) == "no topic ORDERS in this store; did you mean Orders?"
    assert not_among(["a", "b"], {"b"}) == ["a"]
