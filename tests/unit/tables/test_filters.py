"""The table of filters: its file, as RocketMQ 5.3.3 writes and reads it."""

import json

import pytest

from rocketc.tables.filters import BloomFilter, ConsumerFilterData, ConsumerFilters
from rocketc.tables.table_file import read_table

NOW = 1_795_692_833_851

# consumerFilter.json, written by RocketMQ 5.3.3.
OF_JAVA = """{
	"filterDataByTopic":{
		"orders":{
			"groupFilterData":{
				"g1":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[3,96,66]
					},
					"bornTime":1795692833831,
					"clientVersion":21,
					"consumerGroup":"g1",
					"dead":true,
					"deadTime":1795692845924,
					"expression":"a > 8",
					"expressionType":"SQL92",
					"topic":"orders"
				},
				"g4":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[12,91,53]
					},
					"bornTime":1795692833851,
					"clientVersion":22,
					"consumerGroup":"g4",
					"dead":true,
					"deadTime":1795692833894,
					"expression":"a < 2",
					"expressionType":"SQL92",
					"topic":"orders"
				}
			},
			"topic":"orders"
		},
		"nosuch":{
			"groupFilterData":{
				"g4":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[79,110,2]
					},
					"bornTime":1795692833854,
					"clientVersion":21,
					"consumerGroup":"g4",
					"dead":true,
					"deadTime":1795692833894,
					"expression":"a > 8",
					"expressionType":"SQL92",
					"topic":"nosuch"
				}
			},
			"topic":"nosuch"
		}
	}
}"""


def opened(root, **how):
    return ConsumerFilters(root, clock=lambda: NOW, **how)


def written(root, found):
    path = root / "config/consumerFilter.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(found if isinstance(found, str) else json.dumps(found))
    return path


def entry(**fields):
    usual = {"bornTime": 100, "clientVersion": 7, "deadTime": 200, "expression": "a > 1", "expressionType": "SQL92"}
    return {**usual, **fields}


def table(**groups):
    return {"filterDataByTopic": {"orders": {"groupFilterData": groups, "topic": "orders"}}}


def test_a_table_of_rocketmq_is_written_as_it_was(tmp_path):
    path = written(tmp_path, OF_JAVA)
    filters = opened(tmp_path)
    assert len(filters) == 3 and not filters.changed
    assert filters.get("orders", "g1") == ConsumerFilterData(
        "orders", "g1", "a > 8", "SQL92", 21, 1795692833831, 1795692845924
    )
    filters.put(filters.get("orders", "g4"))
    assert filters.persist()
    assert path.read_text() == OF_JAVA


@pytest.mark.parametrize(
    ("consumers", "rate", "bits", "positions"),
    [
        (32, 20, 112, [3, 96, 66]),
        (64, 5, 400, [163, 240, 178, 101, 375]),
        (1, 50, 8, [3]),
        (1000, 1, 9592, [3539, 3384, 2186, 2341, 7095, 6940, 6785]),
        (7, 99, 8, [3]),
    ],
)
def test_bits_of_the_bloom_filter(consumers, rate, bits, positions):
    """As a broker of RocketMQ 5.3.3 wrote them with these settings."""
    bloom = BloomFilter(consumers, rate)
    assert (bloom.bit_num, bloom.positions("g1", "orders")) == (bits, positions)


@pytest.mark.parametrize("size", range(40))
def test_bits_of_names_of_all_sizes(size):
    assert all(0 <= one < 112 for one in BloomFilter().positions("g" * size, "ü"))


def test_what_is_alive_in_the_file_is_dead_after_it_is_read(tmp_path):
    written(tmp_path, table(old=entry(bornTime=100, deadTime=0), young=entry(bornTime=NOW, deadTime=0), dead=entry()))
    filters = opened(tmp_path)
    assert filters.get("orders", "old").dead_time == NOW - 30_000
    assert filters.get("orders", "young").dead_time == NOW
    assert filters.get("orders", "dead").dead_time == 200
    assert all(data.is_dead for data in filters.items())


@pytest.mark.parametrize("broken", ['{"filterDataByTopic', "", "[]"])
def test_a_damaged_file_is_replaced_by_its_copy(tmp_path, broken):
    filters = opened(tmp_path)
    filters.put(ConsumerFilterData("orders", "audit", "a > 1", born_time=NOW))
    filters.persist()
    filters.put(ConsumerFilterData("orders", "shop", "a > 1", born_time=NOW))
    filters.persist()
    (tmp_path / "config/consumerFilter.json").write_text(broken)
    filters = opened(tmp_path)
    assert [data.consumer_group for data in filters.items()] == ["audit"]
    assert "was read instead" in filters.load_error


def test_both_files_are_damaged(tmp_path):
    written(tmp_path, "{").with_suffix(".json.bak").write_text("{")
    filters = opened(tmp_path)
    assert len(filters) == 0 and "it is read as empty" in filters.load_error


@pytest.mark.parametrize(
    "found",
    [
        {"filterDataByTopic": 5},
        {"filterDataByTopic": {"orders": 5}},
        {"filterDataByTopic": {"orders": {}}},
        {"filterDataByTopic": {"orders": {"groupFilterData": [1]}}},
        table(audit=5),
        table(audit=entry(expression=5)),
        table(audit=entry(bornTime="x")),
        table(audit=entry(clientVersion=1.5)),
        table(audit=entry(deadTime=None)),
    ],
)
def test_wrong_entries_are_skipped(tmp_path, found):
    found["filterDataByTopic"] = (
        {"good": {"groupFilterData": {"one": entry()}}, **found["filterDataByTopic"]}
        if isinstance(found["filterDataByTopic"], dict)
        else found["filterDataByTopic"]
    )
    written(tmp_path, found)
    filters = opened(tmp_path)
    assert [data.topic for data in filters.items()] in (["good"], [])
    assert filters.load_error is not None


def test_filters_of_a_group(tmp_path):
    filters = opened(tmp_path)
    one, two = (ConsumerFilterData(topic, "audit", "a > 1") for topic in ("orders", "other"))
    assert filters.put(one) and filters.put(two) and filters.changed
    assert filters.of_group("audit") == [one, two] and filters.of_group("shop") == []
    assert filters.remove("orders", "audit") and not filters.remove("orders", "audit")
    assert filters.of_group("audit") == [two]
    assert filters.remove("other", "audit") and len(filters) == 0


def test_the_table_has_a_largest_size(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketc.tables.filters._BYTES_MOST", 2000)
    filters = opened(tmp_path)
    assert filters.put(ConsumerFilterData("orders", "audit", "x" * 1000))
    assert not filters.put(ConsumerFilterData("orders", "shop", "x" * 1000))
    assert filters.put(ConsumerFilterData("orders", "audit", "x" * 500))  # it replaces the first one
    assert filters.put(ConsumerFilterData("orders", "shop", "x" * 500))
    filters.remove("orders", "audit")
    assert filters.put(ConsumerFilterData("orders", "third", "x" * 500))
    filters.persist()
    monkeypatch.setattr("rocketc.tables.filters._BYTES_MOST", 1000)
    assert "too large" in opened(tmp_path).load_error


def test_other_members_of_the_file_stay(tmp_path):
    path = written(tmp_path, {**table(audit=entry()), "later": 1})
    filters = opened(tmp_path, bloom=BloomFilter(64, 5))
    filters.put(filters.get("orders", "audit"))
    filters.persist()
    found = read_table(path).data
    assert list(found) == ["filterDataByTopic", "later"]
    assert found["filterDataByTopic"]["orders"]["groupFilterData"]["audit"]["bloomFilterData"]["bitNum"] == 400
