"""The command `rocketc`. It is not in the package, so that Ctrl-C ends it quietly while the package is loaded, too."""

import os
import signal
import sys


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    _open_standard_streams()
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # under nohup, SIGINT stays ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rocketc.cli.main import main as run

    try:
        signal.signal(signal.SIGINT, handler)
        run()
    except KeyboardInterrupt:
        sys.exit(130)


def _open_standard_streams() -> None:
    """Open those of stdin, stdout and stderr on /dev/null that are closed (`>&-`).

    Otherwise a file or socket gets the number: libuv aborts then, and an error message could be written into a file.
    Python has set sys.stdout to None already, so commands still report that they cannot write their results.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number
