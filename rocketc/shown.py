"""How what the library gives looks in a notebook: rocketc.notebook draws it, and is loaded when a notebook asks."""

from __future__ import annotations

import importlib


def html_of(thing: object) -> str:
    """A small piece of HTML, as rocketc.notebook has it for things of this type.

    >>> import rocketc
    >>> "<table" in html_of(rocketc.decode(rocketc.encode("orders", b"hi")))
    True
    """
    text: str = importlib.import_module("rocketc.notebook").html(thing)  # by name: it stands far above
    return text


class Shown:
    """A base of what has such a form."""

    def _repr_html_(self) -> str:
        return html_of(self)
