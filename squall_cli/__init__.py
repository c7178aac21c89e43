"""Squall's command: `squall run`, `squall submit`, `squall status` and the others.

The top of the house: it may import every other package, and none imports it. `main` is where it starts; each
command is a module that is loaded only when it is asked for.
"""
