"""Scripts that tests run in processes of their own."""

import subprocess
import sys


def run_script(script, *arguments, **options):
    """Run it to its end, which is a good one: what it printed, and what it told."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script, *map(str, arguments)], capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def closed_at_a_signal(opened, handler):
    """A script's last lines: a signal comes while what is open under a name is closed, and `store` with it; told() says
    what they print."""
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
    """What closed_at_a_signal() prints when all went well."""
    return (["interrupted"] if "default" in handler else []) + ["True"]
