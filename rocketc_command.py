"""The command `rocketc`. It is not in the package, so that Ctrl-C ends it quietly while the package is loaded, too."""

import signal
import sys


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # under nohup, SIGINT stays ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rocketc.cli.main import main as run

    try:
        signal.signal(signal.SIGINT, handler)
        run()
    except KeyboardInterrupt:
        sys.exit(130)
