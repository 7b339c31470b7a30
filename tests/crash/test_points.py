"""Processes killed inside a write into a map, at each named point: a writer that rolls twice, and an opening that
rebuilds consume queues and index.

A killed process leaves in the page cache the part of a record, unit or key that it had written.
"""

import shutil
from pathlib import Path

import pytest
from crash import points, remains
from crash.recoveries import SETTINGS
from crash.tracing import Zygote
from crash.written import assert_written
from crash.zygote import COUNT, body
from support.preload import built, loading

pytestmark = [pytest.mark.long, pytest.mark.promise(1, 5)]

MIXES = {
    "sync": {"flush": "sync"},
    "async": {"flush": "async", "lock": "spin"},
    "extended": {"flush": "async", "enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 4096},
}


@pytest.fixture(scope="module")
def pointed(tmp_path_factory):
    """A process for jobs that reports the points."""
    library = built(Path(__file__).with_name("points.c"))
    package = points.build(tmp_path_factory.mktemp("points"))
    made = Zygote(tmp_path_factory.mktemp("zygote"), package, LD_PRELOAD=loading(library))
    yield made
    made.close()


def met(zygote: Zygote, job: str, root: Path, fields: dict[str, object]) -> list[tuple[str, int]]:
    """(name, n) of each time that a job reaches a point; the job is not killed."""
    killed, lines = zygote.run(job, root, fields, point=None)
    assert not killed
    found = [line.split("\t")[1:] for line in lines if line.startswith("point\t")]
    return [(name, n) for name, times in found for n in range(1, int(times) + 1)]


@pytest.mark.parametrize("mix", MIXES)
def test_a_writer_killed_inside_its_writes(pointed, memory_path, mix):
    fields = {**SETTINGS, **MIXES[mix]}
    places = met(pointed, "write", memory_path / "whole", fields)
    assert_written(memory_path / "whole", fields, ["closed"], "not killed")
    deaths = 0
    for place in places:
        root = memory_path / "killed"
        killed, lines = pointed.run("write", root, fields, point=place)
        deaths += killed
        assert_written(root, fields, lines, place)
        shutil.rmtree(root)
    assert deaths > 0.8 * len(places) > 100  # the background thread batches its work differently in each run


def derived(root: Path) -> tuple[remains.Files, list[bytes]]:
    """The consume queue files, and the index files, whose names are times. Asserts that the log is unchanged."""
    files = remains.take(root)
    assert [m["storedBody"] for m in remains.messages(files)] == [body(n) for n in range(COUNT)]
    queues = {name: data for name, data in files.items() if name.startswith("consumequeue")}
    return queues, [files[name] for name in sorted(files) if name.startswith("index/")]


@pytest.mark.parametrize("mix", ["async", "extended"])
def test_an_opening_killed_inside_its_writes(pointed, memory_path, mix):
    """An opening rebuilds consume queues and index from the log; if it is killed, the next one does."""
    fields = {**SETTINGS, **MIXES[mix]}
    root = memory_path / "made"
    assert not pointed.run("write", root, fields)[0]
    log = {name: data for name, data in remains.take(root).items() if name.startswith("commitlog/")}
    places = met(pointed, "recover", remains.lay(log, memory_path / "whole"), fields)
    assert derived(memory_path / "whole") == derived(root)
    deaths = 0
    for place in places:
        root = remains.lay(log, memory_path / "killed")
        killed, _ = pointed.run("recover", root, fields, point=place)
        deaths += killed
        assert not pointed.run("recover", root, fields)[0]
        assert derived(root) == derived(memory_path / "made"), place
    assert deaths > 0.8 * len(places) > 50


def test_no_point_is_left_out(pointed, memory_path):
    found = set()
    for mix, fields in MIXES.items():
        root = memory_path / mix
        found |= {name for name, _ in met(pointed, "write", root, {**SETTINGS, **fields})}
        log = {name: data for name, data in remains.take(root).items() if name.startswith("commitlog/")}
        found |= {name for name, _ in met(pointed, "recover", remains.lay(log, root), {**SETTINGS, **fields})}
    assert found == points.NAMES
