"""Helpers of the tests: `from support import stores`, `from support.command import rocketc`.

A module is here if tests of several folders use it; a helper of one folder is in that folder. The tests of these
modules are in tests/unit/support.

- The format's specification in Python: oracle, derived, expected_counts.
- Stores and logs to test with: stores (the golden ones), oracle_stores, damaged_logs, index_files, strategies.
- Checks: compare, queries, store_checks, put_checks, queue_checks, export_readers, spark_frames.
- Processes, threads, servers, C code: command, scripts, threads, http_server, native, preload.
- Source files, pages of the documentation, promises: sources, pages, promise_counts, promise_table.
"""
