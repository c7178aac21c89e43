"""The modules of the commands; the table in `squall_cli/main.py` lists all commands."""
