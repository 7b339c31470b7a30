"""Scripts that tests run in their own processes."""

import subprocess
import sys


def run_script(script, *arguments, **options):
    """Run a script, which must succeed; return its stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script, *map(str, arguments)], capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def closed_at_a_signal(opened, handler):
    """The last lines of a script in which a signal arrives while the object of a name, and `store` with it, is closed.

    `told()` returns what these lines print.
    """
    return f"""
import os, signal, threading
signal.signal(signal.SIGTERM, {handler})
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
try:
    {opened}.close()
except KeyboardInterrupt:
    print("interrupted")
finally:
    print(store.closed)
"""


def told(handler):
    """What closed_at_a_signal() prints if both are closed."""
    return (["interrupted"] if "default" in handler else []) + ["True"]
