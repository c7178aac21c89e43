"""Names of Spark's settings: which are Hadoop's, and which are secret. Must not know: values, sessions."""

from __future__ import annotations

import re
from typing import Final

#: Prefix of Hadoop's settings among Spark's.
HADOOP_PREFIX: Final = "spark.hadoop."
#: Finds names of settings that are kept off the command line, which every user of the machine can read. Spark also treats
#: settings with these names as secret.
_SECRET: Final = re.compile(r"(?i)secret|password|token|access[.]?key")


def is_secret(name: str) -> bool:
    """Return whether a setting's value must not be shown, judged by its name."""
    return _SECRET.search(name) is not None
