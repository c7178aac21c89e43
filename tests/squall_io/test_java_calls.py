"""The meaning of a failed call to Java, without Java: its exception, however it was converted, or no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from squall.stores.files import AbsentFile, FilesRefused, FilesUnavailable
from squall.stores.java.java_calls import translated_errors

MISSING = "java.io.FileNotFoundException"
DENIED = "org.apache.hadoop.security.AccessControlException"


class Error(Exception):
    """Errors as Py4J defines them."""

    __module__ = "py4j.protocol"


class NoNetwork(Error):
    """No answer came."""

    __module__ = "py4j.protocol"


class JavaClass:
    """An object of java.lang.Class."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def getName(self) -> str:
        return self.names[0]

    def getSuperclass(self) -> JavaClass | None:
        return JavaClass(*self.names[1:]) if self.names[1:] else None


class JavaException:
    """An object of java.lang.Throwable, as long as its JVM is there."""

    def __init__(
        self, name: str, message: str = "", cause: JavaException | None = None, gone: bool = False
    ) -> None:
        self.name, self.message, self.cause, self.gone = name, message, cause, gone

    def getClass(self) -> JavaClass:
        if self.gone:
            raise NoNetwork("Answer from Java side is empty")
        return JavaClass(self.name, "java.io.IOException", "java.lang.Exception")

    def getMessage(self) -> str:
        return self.message

    def getCause(self) -> JavaException | None:
        return self.cause


class JavaError(Error):
    """Py4J's error for an exception of Java, which asks the JVM for its text."""

    __module__ = "py4j.protocol"

    def __init__(self, thrown: JavaException) -> None:
        super().__init__(thrown)
        self.java_exception = thrown

    def __str__(self) -> str:
        self.java_exception.getClass()
        return "An error occurred while calling o1.x."


def fails(call: Callable[[], object]) -> Any:
    """The error of `Files` for a failing call."""
    with pytest.raises(Exception) as raised, translated_errors("cannot read hdfs://h:1/t/a"):
        call()
    return raised.value


def raising(error: BaseException) -> Callable[[], object]:
    def call() -> object:
        raise error

    return call


def converted(first: BaseException, then: BaseException, hidden: bool) -> Callable[[], object]:
    """A failing call, with PySpark's conversion of its error."""

    def call() -> object:
        try:
            raise first
        except Error:
            if hidden:
                raise then from None
            raise then  # noqa: B904

    return call


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize(
    "then",
    [
        Error(
            "An error occurred while calling z:org.apache.spark.util.Utils.exceptionString. Trace:\npy4j.Py4JException: x"
        ),
        NoNetwork("Error while sending"),
        AssertionError(),  # there is no session any more
        ConnectionRefusedError("no process listens"),
        JavaError(JavaException("java.lang.NullPointerException")),
        ValueError("an exception of another class"),
    ],
    ids=lambda then: type(then).__name__,
)
def test_an_exception_of_java_counts_however_it_was_converted(then: Exception, hidden: bool) -> None:
    error = fails(converted(JavaError(JavaException(MISSING, "/t/a")), then, hidden))
    assert type(error) is AbsentFile
    assert str(error) == "cannot read hdfs://h:1/t/a: /t/a (FileNotFoundException)"


def test_the_causes_of_an_exception_are_queried_too() -> None:
    thrown = JavaException("java.lang.RuntimeException", cause=JavaException(DENIED, "user=x"))
    assert type(fails(raising(JavaError(thrown)))) is FilesRefused


def test_an_exception_that_was_being_handled_before_the_call_is_not_its_error() -> None:
    try:
        raise JavaError(JavaException(MISSING))
    except Error:
        error = fails(raising(NoNetwork("Answer from Java side is empty")))
    assert type(error) is FilesUnavailable and "does not answer" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        NoNetwork("Answer from Java side is empty"),
        Error("An error occurred while calling o1.open"),
        ConnectionRefusedError("no process listens"),
        JavaError(JavaException(MISSING, gone=True)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_java_that_does_not_answer_may_have_ended(error: Exception) -> None:
    found = fails(raising(error))
    assert type(found) is FilesUnavailable
    assert str(found).startswith(
        "cannot read hdfs://h:1/t/a: the JVM of Spark does not answer, it may have ended ("
    )


def test_a_call_that_java_did_not_make_is_reported_with_its_trace() -> None:
    error = fails(
        raising(
            Error(
                "An error occurred while calling o12.open. Trace:\n"
                "py4j.Py4JException: Method open([class a.B]) does not exist\n"
                "\tat py4j.reflection.ReflectionEngine.getMethod(ReflectionEngine.java:321)\n"
                "Caused by: java.lang.OutOfMemoryError: Java heap space\n\n"
            )
        )
    )
    assert type(error) is FilesUnavailable
    assert str(error) == (
        "cannot read hdfs://h:1/t/a: An error occurred while calling o12.open. Method open([class a.B]) does not exist"
        " (py4j.Py4JException), caused by Java heap space (java.lang.OutOfMemoryError); Java is shutting down, or its"
        " Spark does not match this PySpark"
    )
    assert "no class at all" in str(
        fails(raising(Error("An error occurred while calling o1.x. Trace:\nno class at all\n")))
    )


def test_other_errors_than_javas_are_passed_through() -> None:
    for error in (ValueError("ours"), AbsentFile("told already"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, translated_errors("cannot read x"):
            raise error
        assert raised.value is error
