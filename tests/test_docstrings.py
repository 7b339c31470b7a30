"""The examples in docstrings run, and every public function has an example."""

import doctest
import importlib
import inspect
import pkgutil
import tempfile
from collections.abc import Iterator

import pytest

import rocketc

FOUND = [module.name for module in pkgutil.walk_packages(rocketc.__path__, "rocketc.")]
SERVANTS = ("exports", "metrics", "report", "spark", "cli")  # public functions and commands use them
MODULES = ["rocketc", *(name for name in FOUND if not name.endswith(".__main__"))]  # importing __main__ runs it
assert len(MODULES) >= 150


def public_functions() -> Iterator[tuple[str, object]]:
    """The functions of `rocketc`, the methods of its classes, and the functions of the packages below the doors."""
    for name in rocketc.__all__:
        thing = getattr(rocketc, name)
        if inspect.isclass(thing):
            ours = [base for base in thing.__mro__ if base.__module__.startswith("rocketc")]
            for method in sorted({name for base in ours for name in vars(base)}):
                if not method.startswith("_") and callable(getattr(thing, method)):
                    yield f"{name}.{method}", getattr(thing, method)
        elif callable(thing):
            yield name, thing
    for name in MODULES:
        if name.count(".") and name.split(".")[1] not in SERVANTS and not name.rpartition(".")[2].startswith("_"):
            for function, thing in vars(importlib.import_module(name)).items():
                if inspect.isfunction(thing) and thing.__module__ == name and not function.startswith("_"):
                    yield f"{name.removeprefix('rocketc.')}.{function}", thing


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # for the folders that the examples make
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("thing", [pytest.param(thing, id=name) for name, thing in public_functions()])
def test_public_function_has_an_example(thing):
    assert ">>> " in (inspect.getdoc(thing) or "")


def test_scan_and_decode_take_the_same_options():
    scan, decode = (inspect.signature(function).parameters for function in (rocketc.scan, rocketc.decode))
    options = [parameter for parameter in scan.values() if parameter.kind is parameter.KEYWORD_ONLY]
    others = (
        "storage_options",
        "partial",
        "unreadable",
        "credentials",
        "tls",
        "group",
        "all_topics",
    )  # of files, of clusters
    options = [p for p in options if p.name not in others]
    assert options == [p for p in decode.values() if p.kind is p.KEYWORD_ONLY and p.name != "file"]
