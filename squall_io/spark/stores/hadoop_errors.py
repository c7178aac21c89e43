"""Translates errors of Hadoop's client: a table of its exception classes, for the Java client and for WebHDFS, and a context
for calls to Java through Py4J.

Only an exception's class decides; its text is for users. An exception that is not in the table is presumed to be temporary:
`FilesUnavailable`.

Once a process has had a Spark session, PySpark converts each exception that Py4J raises, and asks the *session's* JVM about
the exception, even if a different JVM raised it. In the session's JVM, a reference to another JVM's exception names no object,
or a wrong object: the conversion fails, or makes an exception of a wrong class. (The conversion also fails once there is no
session.) So this module finds the exception that Py4J raised first in the `__context__` of the final exception, and examines it
in the JVM that raised it.
Must not know: which call was made.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from squall_io.spark.manifest.files import AbsentFile, FilesError, FilesRefused, FilesUnavailable
from topology_api import SquallError

_log = logging.getLogger(__name__)


class FileTaken(FilesError):
    """The name is taken. Stores turn this error into their return value."""


@dataclass(frozen=True)
class Thrown:
    """A Java exception, without its causes."""

    #: The full name of its class, then the names of its superclasses.
    classes: Sequence[str]
    message: str

    @property
    def name(self) -> str:
        """The name of its class without the package."""
        return self.classes[0].rpartition(".")[2].rpartition("$")[2]


_PERMISSION: Final = (
    "give the worker's user (HADOOP_USER_NAME) permission on this folder, or choose another path"
)
_NO_HOST: Final = "is the host's name right?"
_QUOTA: Final = "the quota of a folder above is used up"
_FILE_ABOVE: Final = "a file lies where a folder must be; give another path"
_NAME: Final = "give another path"
_LOCALE: Final = (
    "if the path has letters beyond ASCII, Spark's Java was started in a locale without these letters: start it with"
    " LC_ALL=C.UTF-8"
)
_JARS: Final = "are the jars of this file system in Spark's class path?"
_UP: Final = "is HDFS running there, and are host and port right?"
_SLOW: Final = "the server has not answered in time"
_SIGN_IN: Final = "this cluster wants a sign-in that the worker has not made"
_SCHEME: Final = "is the scheme right, and are the jars of its file system in Spark's class path?"
_SAFE_MODE: Final = "HDFS takes no changes while its NameNode is in safe mode (hdfs dfsadmin -safemode get)"
_STANDBY: Final = "this NameNode is not the active one: give the name of the service instead of a host"

#: For each class: its meaning, and advice.
_KNOWN: Final[dict[str, tuple[type[FilesError], str]]] = {
    "java.io.FileNotFoundException": (AbsentFile, ""),
    "java.nio.file.NoSuchFileException": (AbsentFile, ""),
    "org.apache.hadoop.fs.FileAlreadyExistsException": (FileTaken, ""),
    "java.nio.file.FileAlreadyExistsException": (FileTaken, ""),
    "org.apache.hadoop.fs.permission.AccessControlException": (FilesRefused, _PERMISSION),
    "org.apache.hadoop.security.AccessControlException": (FilesRefused, _PERMISSION),
    "java.nio.file.AccessDeniedException": (FilesRefused, _PERMISSION),
    "java.nio.file.InvalidPathException": (FilesRefused, _LOCALE),
    "java.lang.SecurityException": (FilesRefused, _SIGN_IN),
    "javax.security.sasl.SaslException": (FilesRefused, _SIGN_IN),
    "org.apache.hadoop.security.KerberosAuthException": (FilesRefused, _SIGN_IN),
    "java.net.UnknownHostException": (FilesRefused, _NO_HOST),
    "java.security.cert.CertificateException": (
        FilesRefused,
        "is the server's certificate for this name, and signed by an authority that this machine trusts?",
    ),
    "org.apache.hadoop.hdfs.protocol.FSLimitException": (FilesRefused, _NAME),
    "org.apache.hadoop.hdfs.protocol.QuotaExceededException": (FilesRefused, _QUOTA),
    # WebHDFS names only an exception's own class, so subclasses of the two classes above are listed too.
    "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException": (FilesRefused, _QUOTA),
    "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException": (FilesRefused, _QUOTA),
    "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException": (FilesRefused, _NAME),
    "org.apache.hadoop.fs.ParentNotDirectoryException": (FilesRefused, _FILE_ABOVE),
    "org.apache.hadoop.fs.PathIsNotDirectoryException": (FilesRefused, _FILE_ABOVE),
    "org.apache.hadoop.fs.InvalidPathException": (FilesRefused, _NAME),
    "org.apache.hadoop.fs.viewfs.NotInMountpointException": (FilesRefused, _NAME),
    "org.apache.hadoop.fs.UnsupportedFileSystemException": (FilesRefused, _SCHEME),
    "java.net.ConnectException": (FilesUnavailable, _UP),
    "java.net.NoRouteToHostException": (FilesUnavailable, _UP),
    "java.net.SocketTimeoutException": (FilesUnavailable, _SLOW),
    "org.apache.hadoop.net.ConnectTimeoutException": (FilesUnavailable, _UP),
    "java.io.EOFException": (FilesUnavailable, "the connection has ended in the middle of a message"),
    "org.apache.hadoop.hdfs.server.namenode.SafeModeException": (FilesUnavailable, _SAFE_MODE),
    "org.apache.hadoop.ipc.RetriableException": (FilesUnavailable, ""),
    "org.apache.hadoop.ipc.StandbyException": (FilesUnavailable, _STANDBY),
}

#: Unspecific classes, which decide only if no cause has a specific class.
_VAGUE: Final[dict[str, tuple[type[FilesError], str]]] = {
    "java.lang.IllegalArgumentException": (FilesRefused, ""),
    "java.lang.UnsupportedOperationException": (FilesRefused, ""),
    "java.lang.ClassNotFoundException": (FilesRefused, _JARS),
    "java.lang.NoClassDefFoundError": (FilesRefused, _JARS),
}

#: Matches a line of a Java stack trace that names an exception: "Caused by: java.io.IOException: No space left on device", or
#: the same without "Caused by: " at the beginning of the trace. An exception of a NameNode has a second class in parentheses:
#: "Caused by: org.apache.hadoop.ipc.RemoteException(java.io.IOException): File /a could only be written to 0 of ...".
_CAUSE: Final = re.compile(
    r"^(?:: |Caused by: |py4j\.protocol\.Py4JJavaError: )?((?:[a-z][\w]*\.)+[A-Z][\w$]*)(?:\(([\w.$]+)\))?(?:: (.*))?$",
    re.MULTILINE,
)
#: A NameNode's message for several problems, in an exception without a specific class.
_NO_DATA_NODE: Final = "could only be written to 0 of"
#: The most causes of an exception that are examined.
_CAUSES: Final = 8
#: Part of Py4J's text if Java answers with an error that the called method did not raise.
_TRACE: Final = " Trace:\n"


def error_of(what: str, chain: Sequence[Thrown]) -> FilesError:
    """Return the error for a call that raised an exception with causes; `what` names the call: "cannot read hdfs://..."."""
    for table in (_KNOWN, _VAGUE):
        for thrown in chain:
            for name in thrown.classes:
                if name in table:
                    kind, help_ = table[name]
                    return kind(_text(what, thrown, help_))
    help_ = "there is no DataNode that runs and has room" if _NO_DATA_NODE in chain[0].message else ""
    return FilesUnavailable(_text(what, chain[0], help_))


def causes_in(trace: str) -> list[Thrown]:
    """Return the exceptions that a Java stack trace names, from the outermost to the innermost."""
    return [Thrown((found[2] or found[1],), found[3] or "") for found in _CAUSE.finditer(trace)]


def shortened(text: str, longest: int = 400) -> str:
    """Return a text, or its beginning if it has more than `longest` characters."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _text(what: str, thrown: Thrown, help_: str) -> str:
    """Return one line with the call, the exception's message and class, and advice."""
    lines = thrown.message.strip().splitlines()
    said = lines[0].partition("; For more details see:")[0].strip() if lines else ""
    said = shortened(said, 300)
    return f"{what}: {f'{said} ({thrown.name})' if said else thrown.name}{f'; {help_}' if help_ else ''}"


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Turn errors of calls to Java into errors of `Files`. `what` names the call: "cannot read hdfs://..."."""
    handled = sys.exc_info()[1]
    try:
        yield
    except SquallError:
        raise
    except Exception as error:
        if (meaning := _meaning(what, error, handled)) is None:
            raise
        raise meaning from None


def _meaning(what: str, error: BaseException, handled: BaseException | None) -> FilesError | None:
    """Return the error of `Files` for an exception; None if no call to Java has failed."""
    thrown = _thrown_before(error, handled)
    try:
        if thrown is not None:
            return error_of(what, _chain(thrown))
    except Exception as gone:  # the JVM ended while it was asked about its exception
        error = gone
    if not isinstance(error, OSError) and not _is_py4js(error):
        return None
    call, answered, trace = str(error).partition(_TRACE)
    if answered:
        _log.debug("%s: %s", what, error)
        return _own_error(f"{what}: {call.strip()}", trace)
    said = (call.splitlines() or [type(error).__name__])[0]
    return FilesUnavailable(f"{what}: the JVM of Spark does not answer, it may have ended ({said})")


def _thrown_before(error: BaseException | None, handled: BaseException | None) -> Any:
    """Return the Java exception that was raised first since `handled`, if any."""
    thrown = None
    while error is not None and error is not handled:
        if _is_py4js(error):
            thrown = getattr(error, "java_exception", None) or thrown
        error = error.__context__
    return thrown


def _is_py4js(error: BaseException) -> bool:
    """Return whether an exception is one of Py4J's."""
    return any(kind.__module__.partition(".")[0] == "py4j" for kind in type(error).__mro__)


def _chain(thrown: Any) -> list[Thrown]:
    """Return a Java exception and its causes."""
    chain: list[Thrown] = []
    while thrown is not None and len(chain) < _CAUSES:
        classes = []
        above = thrown.getClass()
        while above is not None:
            classes.append(str(above.getName()))
            above = above.getSuperclass()
        if classes[0] == "org.apache.hadoop.ipc.RemoteException":
            classes.insert(0, str(thrown.getClassName()))
        chain.append(Thrown(classes, str(thrown.getMessage() or "")))
        thrown = thrown.getCause()
    return chain


def _own_error(what: str, trace: str) -> FilesUnavailable:
    """Return the error for a call that Py4J's server did not carry out, for example while Java shuts down."""
    causes = [f"{cause.message} ({cause.classes[0]})".strip() for cause in causes_in(trace)]
    said = ", caused by ".join(causes) or trace.strip().partition("\n")[0]
    return FilesUnavailable(f"{what} {said}; Java is shutting down, or its Spark does not match this PySpark")
