"""`python -m squall_cli` is `squall`."""

from squall_cli.main import main

main()
