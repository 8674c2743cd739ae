"""`python -m broker` is `bartleby`."""

import os
import signal
from types import FrameType


def _end(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)


def main() -> None:
    """The entry point of both.  Signals while modules are loading end it at once, without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    # Of a container's first process the system discards signals that have no handler.
    end = _end if os.getpid() == 1 else signal.SIG_DFL
    if end is _end:
        signal.signal(signal.SIGTERM, end)  # until a broker has its own
    if handler is signal.default_int_handler:  # unless it is ignored (nohup)
        signal.signal(signal.SIGINT, end)
    from broker.cli.main import main as command

    signal.signal(signal.SIGINT, handler)
    command()


if __name__ == "__main__":
    main()
