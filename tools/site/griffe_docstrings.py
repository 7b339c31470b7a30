"""Docstrings and overloads for griffe, with which mkdocstrings reads modules."""

import functools
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))  # griffe imports only this file
from docstrings import CONSTANTS, fetched, rendered


class Docstrings(griffe.Extension):
    """Replace each docstring by Markdown. Docstrings of compiled modules are read from the objects, not from stubs."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.is_class:
            add_overloaded(obj)
        if obj.is_module or (obj.name.startswith("_") and not obj.is_class):
            return
        text = obj.docstring.value if obj.docstring else CONSTANTS.get(obj.name) or fetched(obj.path)
        if text:
            owner = obj.parent.path if obj.parent is not None and obj.parent.is_class else ""
            obj.docstring = griffe.Docstring(rendered(text, public_name(owner)), parent=obj)


def add_overloaded(thing: griffe.Class) -> None:
    """Add the methods of a stub that have overloads only: griffe shows a method that has an implementation as well."""
    for name, overloads in thing.overloads.items():
        if name not in thing.members:
            last = overloads[-1]
            method = griffe.Function(name, parameters=last.parameters, returns=last.returns, lineno=last.lineno)
            method.overloads = overloads
            thing.set_member(name, method)


@functools.cache
def public_name(path: str) -> str:
    """Return the name by which users import a class, for `rocketc.store._puts.Putting` rocketc.MessageStore; or ""."""
    import reference

    for name in [name for _, _, names in reference.PAGES.values() for name in names] if path else []:
        thing = reference.resolve(name)
        if path in [f"{base.__module__}.{base.__qualname__}" for base in getattr(thing, "__mro__", [])]:
            return f"rocketc.{name}"
    return ""
