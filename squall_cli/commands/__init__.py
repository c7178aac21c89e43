"""The commands, a module each; the table in `squall_cli/main.py` lists them."""
