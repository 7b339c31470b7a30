"""Each name in an extern .pxd is called by a test, and the lists are complete."""

import re

import pytest
from support.native import LISTED, ROOT
from support.sources import PYX, found

TESTS = "\n".join(path.read_text() for path in found("tests/unit", "test_*.py", 90))


@pytest.mark.parametrize("listed", LISTED, ids=lambda listed: listed.header)
def test_every_function_is_called_by_a_test(listed):
    called = set(re.findall(r"native\.(rc_\w+)\(", TESTS))
    assert {name for _, name, _ in listed.functions} <= called


@pytest.mark.parametrize("listed", LISTED, ids=lambda listed: listed.header)
def test_every_function_that_modules_use_is_listed(listed):
    """A `cdef extern from *` elsewhere would hide a name from these tests."""
    header = (ROOT / "include/rocketc" / listed.header).read_text()
    defined = set(re.findall(r"^(?:RC_TARGET\w+ )?static inline [\w *]+?\**(rc_\w+)\(", header, re.M))
    used = set()
    for path in PYX:
        used |= set(re.findall(r"\b(rc_\w+)\b", path.read_text())) & defined
    assert used <= {name for _, name, _ in listed.functions} | {"rc_pair", "rc_guard", "rc_shape"}
