"""Translates errors of Hadoop's client: a table of its exception classes, for the Java client and for WebHDFS.

Only an exception's class decides; its text is for users. An exception that is not in the table is presumed to be temporary:
`FilesUnavailable`.
Must not know: which call was made, Py4J.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from squall.stores.files import (
    AbsentFile,
    FilesError,
    FilesFull,
    FilesRefused,
    FilesUnavailable,
    FileTaken,
    NotServed,
)


class Thrown(msgspec.Struct, frozen=True):
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
_QUOTA: Final = "the quota of a folder above is used up: delete files there, or raise it (hdfs dfsadmin)"
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
_STANDBY: Final = "this NameNode is not the active one: give the service's name, or all WebHDFS addresses"

#: For each class: its meaning, and advice.
_KNOWN: Final[dict[str, tuple[type[FilesError], str]]] = {
    "java.io.FileNotFoundException": (AbsentFile, ""),
    "java.nio.file.NoSuchFileException": (AbsentFile, ""),
    "org.apache.hadoop.fs.FileAlreadyExistsException": (FileTaken, ""),
    "java.nio.file.FileAlreadyExistsException": (FileTaken, ""),
    "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException": (FileTaken, ""),
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
    "org.apache.hadoop.hdfs.protocol.QuotaExceededException": (FilesFull, _QUOTA),
    # WebHDFS names only an exception's own class, so subclasses of the two classes above are listed too.
    "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException": (FilesFull, _QUOTA),
    "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException": (FilesFull, _QUOTA),
    "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException": (FilesRefused, _NAME),
    "org.apache.hadoop.fs.ParentNotDirectoryException": (FilesRefused, _FILE_ABOVE),
    "org.apache.hadoop.fs.PathIsNotDirectoryException": (FilesRefused, _FILE_ABOVE),
    "org.apache.hadoop.fs.InvalidPathException": (FilesRefused, _NAME),
    "org.apache.hadoop.fs.viewfs.NotInMountpointException": (FilesRefused, _NAME),
    "org.apache.hadoop.fs.UnsupportedFileSystemException": (FilesRefused, _SCHEME),
    "java.net.ConnectException": (NotServed, _UP),
    "java.net.NoRouteToHostException": (NotServed, _UP),
    "java.net.SocketTimeoutException": (FilesUnavailable, _SLOW),
    "org.apache.hadoop.net.ConnectTimeoutException": (FilesUnavailable, _UP),
    "java.io.EOFException": (FilesUnavailable, "the connection has ended in the middle of a message"),
    "org.apache.hadoop.hdfs.server.namenode.SafeModeException": (FilesUnavailable, _SAFE_MODE),
    "org.apache.hadoop.ipc.RetriableException": (FilesUnavailable, ""),
    "org.apache.hadoop.ipc.StandbyException": (NotServed, _STANDBY),
}

#: Unspecific classes, which decide only if no cause has a specific class.
_VAGUE: Final[dict[str, tuple[type[FilesError], str]]] = {
    "java.lang.IllegalArgumentException": (FilesRefused, ""),
    "java.lang.UnsupportedOperationException": (FilesRefused, ""),
    "java.lang.ClassNotFoundException": (FilesRefused, _JARS),
    "java.lang.NoClassDefFoundError": (FilesRefused, _JARS),
}

#: A NameNode's message for several problems, in an exception without a specific class.
_NO_DATA_NODE: Final = "could only be written to 0 of"


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


def shortened(text: str, longest: int = 400) -> str:
    """Return a text, or its beginning if it has more than `longest` characters."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _text(what: str, thrown: Thrown, help_: str) -> str:
    """Return one line with the call, the exception's message and class, and advice."""
    lines = thrown.message.strip().splitlines()
    said = lines[0].partition("; For more details see:")[0].strip() if lines else ""
    said = shortened(said, 300)
    return f"{what}: {f'{said} ({thrown.name})' if said else thrown.name}{f'; {help_}' if help_ else ''}"
