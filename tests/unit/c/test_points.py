"""points.h: without its build option a point does nothing. With it: tests/crash/test_points.py."""

from support.native import native


def test_a_point_does_nothing():
    assert native.rc_point(b"record: body") is None
