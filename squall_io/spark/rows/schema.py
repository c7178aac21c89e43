"""The schema of a table's rows: parses it from Spark's DDL text, `"word string, count bigint NOT NULL"`, and adds new columns.

The text is parsed without Spark, so that a schema is checked where a topology is submitted, possibly without Java and PySpark.
Spark reads every accepted text in the same way. Some texts that Spark accepts are refused here, with advice on what to write.
Columns may be added, and may become nullable; nothing else about a table changes, so the latest schema can read every row.
Must not know: PySpark, rows, formats, files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn, TypeVar

from squall_io.spark.rows import types
from squall_io.spark.rows.types import Array, Column, Decimal, Map, SchemaError, Simple, Struct, Type
from topology_api.wording import nearest, shown, typed

MAX_COLUMNS: Final = 10_000
#: The deepest nesting of types: the recursions of Python, Spark and the formats handle this depth easily.
MAX_DEPTH: Final = 32

_ALIASES: Final = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
_DECIMALS: Final = frozenset({"decimal", "dec", "numeric"})
_REFUSED: Final = {
    **dict.fromkeys(
        ("char", "character", "varchar"),
        "Spark writes it as a string and does not keep its length: declare a string",
    ),
    "interval": "files do not keep it: declare the length as a bigint, in a unit that the name says",
    "variant": "few formats and readers know it: declare a string of JSON, or a struct",
    **dict.fromkeys(("void", "null"), "no format stores it: leave the column out"),
    "object": "no format stores it: declare binary, and pickle the value yourself",
    "time": "few formats and readers know it: declare a bigint of microseconds, or a string",
    **dict.fromkeys(
        ("geometry", "geography"),
        "few formats and readers know it: declare binary in a format of your choice, such as WKB",
    ),
    "bool": "write boolean",
    "text": "write string",
    "str": "write string",
    "bytes": "write binary",
    "datetime": "write timestamp (an instant), timestamp_ntz (without a zone) or date",
}
_AFTER_TYPE: Final = {
    "default": "files keep no default: give the value in the tuple",
    "generated": "files keep no rule for it: compute the value in the topology",
    "collate": "files keep no collation: leave COLLATE out",
    "null": "a column may hold nulls unless NOT NULL follows its type: leave NULL out",
}
_KNOWN: Final = frozenset({*types.SIMPLE, *_ALIASES, *_DECIMALS, "array", "map", "struct"})

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+|--[^\r\n]*|/\*(?!\+).*?\*/)
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<word>[A-Za-z0-9_]+)
    |(?P<sign>[<>(),:])
    |(?P<odd>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[01][0-7]{2}|.)", re.DOTALL)
_LETTERS: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": r"\%", "_": r"\_"}
#: How many characters of the text an error shows on each side of the error's place.
_SHOWN: Final = 50

T = TypeVar("T")


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in order. Its text is DDL that Spark parses to the same columns."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column | None:
        """Return the column of this name, ignoring case as Spark does."""
        wanted = types.same_name(name)
        return next((column for column in self.columns if types.same_name(column.name) == wanted), None)

    def __str__(self) -> str:
        return ", ".join(map(str, self.columns))


def merge(old: Schema, new: Schema) -> tuple[Schema, list[str]]:
    """Return the old schema with the new schema's columns added, and a sentence for each problem; if there are problems, no
    column is added.

    Columns keep the old order and spelling, and new columns follow. A column may become nullable; it may not become
    NOT NULL, since rows with nulls may exist.
    """
    problems: list[str] = []
    columns = [_merged(column, new.column(column.name), problems) for column in old.columns]
    for column in new.columns:
        if old.column(column.name) is None:
            columns.append(column)
            if not column.nullable:
                problems.append(
                    f"column {column.name!r} is new and NOT NULL, but existing rows have no value for it"
                )
    return (old, problems) if problems else (Schema(tuple(columns)), [])


def _merged(old: Column, new: Column | None, problems: list[str]) -> Column:
    if new is None:
        if not old.nullable:
            problems.append(f"column {old.name!r} is NOT NULL and is missing in the wanted schema")
        return old
    if old.type != new.type:
        problems.append(f"column {old.name!r} is {old.type}, and {new.type} is wanted")
    elif old.nullable and not new.nullable:
        problems.append(f"column {old.name!r} may hold nulls, and NOT NULL is wanted")
    return Column(old.name, old.type, old.nullable or new.nullable, old.comment)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_schema(ddl: object) -> Schema:
    """Return the schema that Spark's DDL text, such as `"word string, count bigint"`, declares. Raises `SchemaError`, whose
    text says what helps.
    """
    if not isinstance(ddl, str):
        raise SchemaError(
            f"the schema is {typed(ddl)}: give Spark's DDL text, such as 'word string, count bigint'"
        )
    try:
        ddl.encode()
    except UnicodeEncodeError:
        raise SchemaError(f"the schema {shown(ddl)} cannot be encoded as UTF-8") from None
    return Schema(_Parser(ddl).columns())


class _Parser:
    """The parser of one text."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = list(self._split())
        self._next = 0

    def columns(self) -> tuple[Column, ...]:
        if self._peek().kind == "end":
            raise SchemaError("the schema is empty: declare at least one column, such as 'word string'")
        return self._columns(0, "end", "")

    # Tokens

    def _split(self) -> Iterator[_Token]:
        for found in _TOKEN.finditer(self._ddl):
            token = _Token(str(found.lastgroup), found.group(), found.start())
            if token.kind == "odd" and token.text in "`'\"":
                self._fail(token.at, f"the quote {token.text} is never closed")
            if token.kind == "odd":
                self._fail(token.at, f"{token.text!r} is not expected: a name with other characters than letters, digits and "
                                     "'_' needs back quotes, `like this`")  # fmt: skip
            if token.kind != "space":
                yield token
        yield _Token("end", "", len(self._ddl))

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += token.kind != "end"
        return token

    def _is_word(self, *words: str) -> bool:
        """Consume the next tokens if they are these words, in upper or lower case; return whether they were."""
        ahead = self._tokens[self._next : self._next + len(words)]
        if [(token.kind, token.text.lower()) for token in ahead] != [("word", word) for word in words]:
            return False
        self._next += len(words)
        return True

    def _sign(self, sign: str, of: str) -> None:
        token = self._take()
        if token.text != sign or token.kind != "sign":
            self._unexpected(token, f"{sign!r} of {of}")

    def _list(self, item: Callable[[], T], closing: str, of: str) -> list[T]:
        """Return items separated by commas, up to `closing`: a sign, or "end" for the end of the text."""
        items = [item()]
        while True:
            if len(items) > MAX_COLUMNS:
                self._fail(self._peek().at, f"there are more than {MAX_COLUMNS} columns")
            token = self._take()
            if token.kind == "sign" and token.text == ",":
                items.append(item())
            elif closing in (token.kind, token.text):
                return items
            else:
                self._unexpected(
                    token, f"a comma or the {'end' if closing == 'end' else f'{closing!r} of {of}'}"
                )

    # Declarations

    def _columns(self, depth: int, closing: str, of: str) -> tuple[Column, ...]:
        """Parse a list of columns or fields, up to its end; no two may have the same name."""
        known: dict[str, str] = {}
        columns = self._list(lambda: self._column(depth), closing, of)
        for column, at in columns:
            other = known.get(types.same_name(column.name))
            known[types.same_name(column.name)] = column.name
            if other is not None:
                what = "twice" if other == column.name else f"besides {other!r}, and Spark ignores case"
                self._fail(at, f"{column.name!r} is declared {what}")
        return tuple(column for column, _ in columns)

    def _column(self, depth: int) -> tuple[Column, int]:
        """Return a column, and its position in the text."""
        token = self._take()
        name = self._name(token)
        if self._peek().text == ":":
            self._take()
        kind = self._type(name, depth)
        nullable = not self._is_word("not", "null")
        comment = self._text(self._take()) if self._is_word("comment") else None
        following = self._peek()
        if following.kind == "word":
            if (why := _AFTER_TYPE.get(following.text.lower())) is not None:
                self._fail(following.at, f"{following.text.upper()} of column {name!r} is refused: {why}")
            if following.text.lower() == "not":
                self._fail(following.at, "NOT NULL belongs between a column's type and its COMMENT")
        return Column(name, kind, nullable, comment), token.at

    def _name(self, token: _Token) -> str:
        if token.kind == "quoted":
            if token.text == "``":
                self._fail(token.at, "the name between the back quotes is empty")
            if "\0" in token.text:
                self._fail(token.at, "a name holds no NUL character")
            return token.text[1:-1].replace("``", "`")
        if token.kind != "word":
            self._unexpected(token, "the name of a column")
        if token.text[0].isdigit():
            self._fail(token.at, f"a name that begins with a digit needs back quotes: `{token.text}`")
        return token.text

    def _text(self, token: _Token) -> str:
        if token.kind != "text":
            self._unexpected(token, "the text of COMMENT, in quotes,")
        quote = token.text[0]
        # A doubled quote is one quote, unless it is escaped.
        inside = re.sub(rf"\\.|{quote}{quote}", lambda found: found.group().replace(quote * 2, quote),
                        token.text[1:-1], flags=re.DOTALL)  # fmt: skip
        try:
            text = _ESCAPE.sub(lambda found: _unescaped(found.group(1)), inside)
            text.encode()
        except (ValueError, OverflowError):
            self._fail(token.at, "the text of COMMENT holds an escape that is not a character")
        return text

    def _type(self, name: str, depth: int) -> Type:
        token = self._take()
        word = token.text.lower()
        if token.kind != "word":
            self._unexpected(token, f"the type of {name!r}")
        if word in _REFUSED:
            self._fail(token.at, f"the type {token.text} of {name!r} is refused: {_REFUSED[word]}")
        if word not in _KNOWN:
            self._fail(token.at, f"{token.text!r} is not a Spark type{nearest(word, sorted(_KNOWN))}")
        if depth > MAX_DEPTH:
            self._fail(token.at, f"types are nested more than {MAX_DEPTH} deep")
        if word in _DECIMALS:
            return self._decimal()
        if word == "array":
            self._sign("<", word)
            element = self._type(f"{name}[]", depth + 1)
            self._sign(">", word)
            return Array(element)
        if word == "map":
            return self._map(name, depth)
        if word == "struct":
            self._sign("<", word)
            return Struct(self._columns(depth + 1, ">", word))
        if self._peek().text == "(":
            self._fail(self._peek().at, f"the type {token.text} takes nothing in parentheses")
        return Simple(_ALIASES.get(word, word))

    def _map(self, name: str, depth: int) -> Map:
        self._sign("<", "map")
        at = self._peek().at
        key = self._type(f"{name}'s keys", depth + 1)
        if isinstance(key, (Array, Map, Struct)) or key in (Simple("float"), Simple("double")):
            self._fail(
                at, f"{key} cannot be a map's key: take a string, a whole number, a decimal, binary or a date"
            )
        self._sign(",", "map")
        value = self._type(f"{name}'s values", depth + 1)
        self._sign(">", "map")
        return Map(key, value)

    def _decimal(self) -> Decimal:
        if self._peek().text != "(":
            return Decimal(10, 0)
        at = self._take().at
        numbers = self._list(self._number, ")", "decimal")
        precision, scale = numbers[0], numbers[1] if len(numbers) > 1 else 0
        if len(numbers) > 2 or not 1 <= precision <= types.MAX_PRECISION or scale > precision:
            self._fail(at, f"a decimal takes its number of digits, 1 to {types.MAX_PRECISION}, and how many of them are after "
                           "the point: decimal(10,2)")  # fmt: skip
        return Decimal(precision, scale)

    def _number(self) -> int:
        token = self._take()
        if not token.text.isdecimal() or len(token.text) > 9:
            self._unexpected(token, "a number of digits")
        return int(token.text)

    # Problems

    def _unexpected(self, token: _Token, wanted: str) -> NoReturn:
        found = "the end" if token.kind == "end" else shown(token.text)
        self._fail(token.at, f"{found} is found where {wanted} is expected")

    def _fail(self, at: int, why: str) -> NoReturn:
        raise SchemaError(_placed(self._ddl, at, why))


def _unescaped(escape: str) -> str:
    if len(escape) == 1:
        return _LETTERS.get(escape, escape)
    return chr(int(escape[1:], 16) if escape[0] in "uU" else int(escape, 8))


def _placed(ddl: str, at: int, why: str) -> str:
    """Return the text of an error with its place: line and column, and the line itself with a mark below it."""
    line, start = ddl.count("\n", 0, at) + 1, ddl.rfind("\n", 0, at) + 1
    left = max(start, at - _SHOWN)
    piece = ddl[left : at + _SHOWN].partition("\n")[0]
    text = "".join(character if character.isprintable() else " " for character in piece)
    place = f"line {line}, column {at - start + 1}"
    return f"the schema cannot be read at {place}: {why}\n  {text}\n  {' ' * (at - left)}^"
