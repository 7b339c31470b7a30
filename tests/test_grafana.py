"""examples/grafana.json: a dashboard that Grafana accepts, with metrics that a store has."""

import json
import re
from pathlib import Path

import prometheus_client
import pytest

from rocketc.metrics.prometheus import StoreCollector
from rocketc.tables.offsets import ConsumerOffsets

BOARD = json.loads((Path(__file__).parents[1] / "examples/grafana.json").read_text(encoding="utf-8"))
TARGETS = [target for panel in BOARD["panels"] for target in panel["targets"]]
QUERIES = [one["query"]["query"] for one in BOARD["templating"]["list"] if one["type"] == "query"]
WORDS = {"sum", "rate", "max", "topk", "by", "histogram_quantile", "label_values"}


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    """{name: label names} of the metrics that Prometheus reads from a store that was used."""
    import rocketc

    with rocketc.open(tmp_path_factory.mktemp("store"), mapped_file_size_commit_log=1 << 20) as store:
        store.put("orders", b"hello")
        store.wait_dispatched()
        offsets = ConsumerOffsets(store.path)
        offsets.commit("orders", "audit", 0, 0)
        offsets.persist()
        registry = prometheus_client.CollectorRegistry()
        registry.register(StoreCollector(store))
        found = {}
        for family in registry.collect():
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize("expr", [*(target["expr"] for target in TARGETS), *QUERIES])
def test_queries_use_existing_metrics_and_labels(series, expr):
    names = set(re.findall(r"\broc\w+", expr))
    assert names and names <= series.keys()
    for name, labels in re.findall(r"\b(roc\w+)\{(.*?)\}", expr):
        assert set(re.findall(r"(\w+)=~", labels)) <= series[name]
    for by in re.findall(r"by \((\w+)\)", expr):
        assert all(by in series[name] for name in names)
    text = re.sub(r'".*?"|\{.*?\}|\[.*?\]', "", expr)
    assert set(re.findall(r"[a-z_]\w+", text)) <= WORDS | names | set().union(*series.values())
    assert all(expr.count(one) == expr.count(two) for one, two in ("()", "[]", "{}"))


def test_legends_use_existing_labels(series):
    for target in TARGETS:
        [name, *_] = re.findall(r"\broc\w+", target["expr"])
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= series[name]


def test_it_has_the_form_of_a_dashboard():
    assert isinstance(BOARD["schemaVersion"], int) and BOARD["schemaVersion"] >= 36
    assert BOARD["title"] and BOARD["uid"] and len(BOARD["uid"]) <= 40
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    covered = set()
    for panel in panels:
        assert panel["type"] in ("timeseries", "stat") and panel["title"]
        assert panel["targets"] and len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & covered
        covered |= cells
    known = {one["name"] for one in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([panels, QUERIES])))
    assert used - {"__rate_interval", "__all"} == known
    assert all(target["datasource"]["uid"] == "${datasource}" for target in TARGETS)
