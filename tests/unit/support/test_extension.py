"""Modules of tests/native are compiled in the same way as in another project."""

from support import extension

import rocketc


def test_a_module_of_another_project_uses_the_contracts():
    decoding = extension.load("decoding")
    assert decoding.body_length(rocketc.encode("orders", b"hello")) == 5
    assert decoding.body_length(b"12345678") < 0
