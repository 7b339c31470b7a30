"""The example of docs/howto/retries.md: RocketMQ's Java consumer fails until the dead letter, at our broker."""

import itertools
import os
import re
import shutil
import subprocess

import pytest
from interop.our_broker import OurBroker
from interop.peer import ENVIRONMENT, Unavailable, jars, tool
from support.native import ROOT

import rocketc

EXAMPLE = ROOT / "examples/retries"
DEAD, RETRY = "%DLQ%billing", "%RETRY%billing"


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_consumer_fails_until_the_dead_letter(tmp_path):
    for name in ("Failing.java", "broker.conf"):
        shutil.copy(EXAMPLE / name, tmp_path)
    try:
        command = [tool("java"), f"-Duser.home={tmp_path}", "-cp", f"{jars('5.3.3')}/*", "Failing.java"]
    except Unavailable as reason:
        pytest.skip(str(reason))
    broker = OurBroker(tmp_path / "store", "-c", tmp_path / "broker.conf", "--port", 0)
    try:
        environment = {**ENVIRONMENT, "NAMESRV_ADDR": broker.name_server, "TZ": "UTC"}
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90)
        said = re.findall(r"^\d\d:\d\d:\d\d\.\d{3} (\w+)(?: [0-9A-F]{32,})?(.*)$", run.stdout, re.M)
        failures = [("failed", f", retry {n} of 3") for n in range(4)]
        assert said == [("sent", ""), *failures, ("ended", f" see {DEAD}")], run
        stored = list(rocketc.scan(tmp_path / "store", topics=[RETRY, DEAD]))
        assert [(one.topic, one.reconsume_times) for one in stored] == [*((RETRY, n) for n in (1, 2, 3)), (DEAD, 4)]
        assert {(one.body, one.keys, one.properties["RETRY_TOPIC"]) for one in stored} == {
            (b"one bicycle", "o-7", "orders")
        }
        waited = [later.store_timestamp - one.store_timestamp for one, later in itertools.pairwise(stored)]
        assert waited[0] >= 2000 and waited[1] >= 3000, waited
    finally:
        broker.end()


def test_the_pages_levels_are_those_of_the_example():
    conf = (EXAMPLE / "broker.conf").read_text(encoding="utf-8")
    page = (ROOT / "docs/howto/retries.md").read_text(encoding="utf-8")
    [levels] = re.findall(r"^messageDelayLevel=.*$", conf, re.M)
    assert f"`{levels}`" in page
    assert os.listdir(EXAMPLE).count("pom.xml") == 1
