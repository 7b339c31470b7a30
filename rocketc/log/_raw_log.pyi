"""Whole records as bytes, by physical offset: functions for other Cython modules, see _raw_log.pxd."""
