"""Squall's command: `squall run`, `squall submit`, `squall status` and its other subcommands.

The top package: it may import every other package, and none imports it. The entry point is `main`; each command is a
module that is loaded only when it runs.
"""
