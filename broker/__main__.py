"""`python -m broker` is `bartleby`."""

import signal


def main() -> None:
    """The entry point of both.  Ctrl-C while the modules are being read ends it without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not where somebody had it ignored (nohup)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from broker.cli.main import main as command

    signal.signal(signal.SIGINT, handler)
    command()


if __name__ == "__main__":
    main()
