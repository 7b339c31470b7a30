"""Set-up of all tests: a current build of the extensions, Hypothesis profiles, golden stores."""

import contextlib
import functools
import importlib.util
import os
import random
import re
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from crash import remains
from support import promise_counts, sources, stores

ROOT = Path(__file__).parents[1]

# Use HYPOTHESIS_PROFILE=debug to look at one failure; `ci` is used where CI is set, `long` by make test-long, otherwise
# `dev`.
hypothesis.settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("dev", max_examples=50, deadline=None)
hypothesis.settings.register_profile("long", max_examples=300, deadline=None, print_blob=True)
hypothesis.settings.register_profile("debug", max_examples=20, deadline=None, verbosity=hypothesis.Verbosity.verbose)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


@functools.cache
def sources_of(path: Path) -> set[Path]:
    """A Cython file, and every .pxd that it needs, directly or not."""
    found = {path}
    for name in re.findall(r"^(?:from|cimport) (rocketc[\w.]*) (?:cimport|as)", path.read_text(), re.MULTILINE):
        found |= sources_of(ROOT / "pyx" / (name.replace(".", "/") + ".pxd"))
    return found | ({own} if (own := path.with_suffix(".pxd")).exists() and own != path else set())


def why_not_testable() -> str | None:
    """Return why the package that tests would import is not the intended one, or None.

    ROCKETC_TEST_PACKAGE names the folder of the package to test if it is not in this source tree: an installed wheel, a
    build with sanitizers.
    """
    spec = importlib.util.find_spec("rocketc")
    if spec is None or not spec.submodule_search_locations:
        return "rocketc cannot be imported"
    found = Path(next(iter(spec.submodule_search_locations))).resolve()
    meant = Path(os.environ.get("ROCKETC_TEST_PACKAGE") or ROOT / "rocketc").resolve()
    if found != meant:
        return f"the tests need {meant}, but Python imports {found}"
    only = os.environ.get("ROCKETC_MODULES", "").split()  # as in setup.py
    shared = [*sources.HEADERS, ROOT / "setup.py"]
    for source in sources.PYX:
        if only and sources.module_of(source) not in only:
            continue
        built = found.parent / source.relative_to(ROOT / "pyx").with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
        if not built.exists():
            return f"{built} is not built"
        newer = [path for path in [*sources_of(source), *shared] if path.stat().st_mtime > built.stat().st_mtime]
        if newer and ROOT in found.parents:
            return f"{built.name} is older than {newer[0].relative_to(ROOT)}"
    return None


def pytest_sessionstart() -> None:
    if reason := why_not_testable():
        pytest.exit(f"{reason}; run `make setup`", returncode=4)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores SIGHUP, and children would inherit that
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell ignores it for background jobs
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Apply the markers `some` and `promise`.

    @pytest.mark.some(n): n variants of a test run each time, always the same ones; the others are `long`.

    @pytest.mark.promise(n): the report of a case says which promises of docs/promises.md it holds.
    """
    variants: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("some") and not item.get_closest_marker("long"):
            variants.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, same in variants.items():
        [count] = same[0].get_closest_marker("some").args  # type: ignore[union-attr]
        random.Random(name).shuffle(same)
        for item in same[count:]:
            item.add_marker(pytest.mark.long)
    for item in items:
        if promises := {promise for mark in item.iter_markers("promise") for promise in mark.args}:
            item.user_properties.append(("promises", sorted(promises)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    if report.failed:
        print(f"\n{report.nodeid} failed", file=sys.stderr, flush=True)  # a long run prints the error only at its end
    promises = dict(report.user_properties).get("promises", ())
    if not promises:
        return
    if report.failed:
        promise_counts.broken()
    elif report.when == "call" and report.passed:
        for promise in promises:
            promise_counts.held(promise)


def pytest_sessionfinish() -> None:
    promise_counts.leave()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep tests of a group in one process: they share one Spark, or one Java process per release of RocketMQ."""
    from xdist.scheduler import LoadScopeScheduling

    class Grouping(LoadScopeScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            folders = nodeid.partition("::")[0].split("/")
            return next((group for group in ("spark", "interop") if group in folders), nodeid)

    return Grouping(config, log)


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], stores.GoldenStore]:
    """golden(name): a golden store, unpacked once a session; for reading only."""
    folder = tmp_path_factory.mktemp("golden")
    unpacked: dict[str, stores.GoldenStore] = {}

    def get(name: str) -> stores.GoldenStore:
        if name not in unpacked:
            unpacked[name] = stores.unpack(name, folder)
        return unpacked[name]

    return get


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """open_store(**fields): rocketc.open in tmp_path with files of 64 KiB, closed at the end of the test."""
    import rocketc

    opened = []

    def make(path: Path = tmp_path, **fields: Any) -> Any:
        store = rocketc.open(path, **{"mapped_file_size_commit_log": 1 << 16, **fields})
        opened.append(store)
        return store

    yield make
    for store in opened:
        with contextlib.suppress(rocketc.StoreFailedError):  # the test has checked the failure
            store.close()


@pytest.fixture
def open_queue(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """open_queue(**options): the rocketc.Queue in `jobs` below tmp_path; closed when the test ends."""
    import rocketc

    opened = []

    def make(path: Path = tmp_path / "jobs", **options: Any) -> Any:
        opened.append(rocketc.Queue(path, **{"mapped_file_size_commit_log": 1 << 20, **options}))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., tuple[Any, Any, str]]:
    """run(*args, binary=False): `rocketc ARGS` in this process; exit code, stdout (binary: as bytes), stderr."""
    from rocketc.cli.main import main

    def call(*args: Any, binary: bool = False) -> tuple[Any, Any, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        out, err = capfdbinary.readouterr()
        return ended.value.code, out if binary else out.decode(), err.decode()

    return call


@pytest.fixture
def run_here(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """As run, in the folder of the test and for a terminal of 100 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return run


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A folder in memory: syncs cost nothing there, and unlike a disk it is not nearly full."""
    with remains.memory() as folder:
        yield Path(folder)
