"""pytest_rocketc: the plugin does not import rocketc, and its fixtures give a broker and topics."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rocketc

HOME = Path(rocketc.__file__).parents[1]
ROOT = Path(__file__).parents[2]


def run(*command, cwd=None, **changes):
    paths = os.pathsep.join([str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""} | changes
    return subprocess.run(
        [sys.executable, *map(str, command)], env=env, cwd=cwd, capture_output=True, text=True, timeout=120
    )


def run_pytest(folder, text, *options):
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return run("-m", "pytest", "-p", "pytest_rocketc", "-p", "no:cacheprovider", "-q", *options, folder)


def test_loading_the_plugin_does_not_import_rocketc():
    done = run("-c", "import sys, pytest_rocketc; print([name for name in sys.modules if name.startswith('rocketc')])")
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_test_without_the_fixtures_does_not_import_rocketc(tmp_path):
    done = run_pytest(tmp_path, "import sys\ndef test(): assert 'rocketc' not in sys.modules\n")
    assert done.returncode == 0, done.stdout


def test_the_entry_point_names_the_plugin():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^\[project\.entry-points\.pytest11\]\nrocketc = "pytest_rocketc"$', text, re.M)
    assert re.search(r'^py-modules = \[.*"pytest_rocketc"', text, re.M)


FIXTURES = """
import pytest
seen = set()

@pytest.mark.parametrize("odd", ["ä b/c", "x" * 300])
def test_a_topic_is_new(rocketmq_broker, rocketmq_topic, odd):
    topic = rocketmq_broker.topics[rocketmq_topic]
    assert topic.write_queue_nums == topic.read_queue_nums == 4
    assert topic.topic_name.startswith("test_a_topic_is_new")
    seen.add((rocketmq_topic, rocketmq_broker.name_server))

def test_the_broker_is_the_same(rocketmq_broker):
    assert len(seen) == 2 and len({server for _, server in seen}) == 1
    print("at", rocketmq_broker.path)
"""


def test_the_fixtures(tmp_path):
    done = run_pytest(tmp_path, FIXTURES, "-s")
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
    assert not Path(re.search(r"at (/.*)$", done.stdout, re.M)[1]).exists()


def test_the_fixtures_are_listed_with_their_docstrings(tmp_path):
    done = run_pytest(tmp_path, "", "--fixtures")
    assert re.search(r"^rocketmq_broker \[session scope\].*\n.*A broker and a name server", done.stdout, re.M)
    assert re.search(r"^rocketmq_topic.*\n.*The name of a new topic", done.stdout, re.M)


def test_each_process_of_xdist_has_its_own_broker(tmp_path):
    pytest.importorskip("xdist")
    text = """
import pathlib, time
def test_one(rocketmq_broker, rocketmq_topic): (here / "one").write_text(rocketmq_broker.name_server)
def test_two(rocketmq_broker, rocketmq_topic): (here / "two").write_text(rocketmq_broker.name_server)
here = pathlib.Path(__file__).parent
"""
    done = run_pytest(tmp_path, text, "-p", "xdist.plugin", "-n", "2")
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "one").read_text() != (tmp_path / "two").read_text()


def test_the_example():
    """With the settings beside it, and without plugins: a user has pytest and rocketc only."""
    done = run("-m", "pytest", "-p", "pytest_rocketc", "-p", "no:cacheprovider", "-q", ROOT / "examples/test_orders.py",
               cwd=ROOT)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
