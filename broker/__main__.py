"""`python -m broker` is `bartleby`."""

import signal


def main() -> None:
    """The entry point of both.  Ctrl-C while modules are loading ends it without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # unless it is ignored (nohup)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from broker.cli.main import main as command

    signal.signal(signal.SIGINT, handler)
    command()


if __name__ == "__main__":
    main()
