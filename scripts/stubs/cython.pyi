"""What mypy knows of Cython's module: the same as of the stand-in for it, which has what the hot modules use."""

from topology_api.plain_cython import *
