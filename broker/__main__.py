"""`python -m broker` is `bartleby`."""

from broker.cli.main import main

main()
