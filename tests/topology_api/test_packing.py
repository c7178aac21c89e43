"""Packing: which objects survive a pickle, and how others are named."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec
import pytest

from topology_api import Bolt, CannotPack, Spout, ValueState
from topology_api.packing import pack

ROOT = Path(__file__).parents[2]


class Thing:
    """Contains its argument."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Holder(Bolt):
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def execute(self, tup: Any) -> None:
        pass


class OneWay(Exception):
    """Can be pickled, but not created again from its arguments: the classic."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)


class Slots:
    __slots__ = ("lock",)
    lock: Any


class Pooled(dict[str, Any]):
    pass


class Liar(Bolt):
    def __reduce__(self) -> Any:
        return dict, ()

    def execute(self, tup: Any) -> None:
        pass


class Stateful(Bolt):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.lock = threading.Lock()

    def execute(self, tup: Any) -> None:
        pass


def culprit(**attributes: Any) -> str:
    with pytest.raises(CannotPack) as caught:
        pack(Holder(**attributes), "bolt 'b'", Bolt)
    assert str(caught.value).startswith("bolt 'b': ")
    return caught.value.attribute


def slots() -> Slots:
    made = Slots()
    made.lock = threading.Lock()
    return made


def test_the_path_of_an_unpicklable_object_is_named() -> None:
    lock = threading.Lock()
    assert culprit(lock=lock) == "self.lock"
    assert culprit(fine=1, db=Thing(host="x", lock=lock)) == "self.db.lock"
    assert culprit(pool=[Thing(), Thing(lock=lock)]) == "self.pool[1].lock"
    assert culprit(by_name={"a": 1, "b": (2, lock)}) == "self.by_name['b'][1]"
    assert culprit(thing=slots()) == "self.thing.lock"
    assert culprit(pool=Pooled(main=lock)) == "self.pool['main']"
    assert culprit(rows=(n for n in range(3))) == "self.rows"


def test_an_open_file_is_named(tmp_path: Path) -> None:
    with open(tmp_path / "x", "w", encoding="utf-8") as file:
        assert culprit(out=Thing(file=file)) == "self.out.file"


def test_captured_variables_of_a_function_are_named() -> None:
    lock = threading.Lock()
    assert culprit(parse=lambda line: lock) == "self.parse (a function; its variable 'lock')"
    assert culprit(parse=lambda line, lock=lock: line).startswith("self.parse (a function; its defaults)")
    assert culprit(method=Thing(lock=lock).__eq__) != "self"


def test_an_object_that_pickles_but_does_not_unpickle_is_named() -> None:
    with pytest.raises(CannotPack) as caught:
        pack(Holder(seen=[Thing(last=OneWay(1, "x"))]), "bolt 'b'", Bolt)
    assert caught.value.attribute == "self.seen[0].last"
    assert "pickled but not unpickled" in caught.value.reason


def test_an_object_that_comes_back_as_another_one_is_refused() -> None:
    with pytest.raises(CannotPack, match="comes back as dict"):
        pack(Liar(), "bolt 'b'", Bolt)


def test_a_component_may_pickle_its_own_state() -> None:
    assert isinstance(pickle.loads(pack(Stateful(), "bolt 'b'", Bolt)), Stateful)


def test_objects_that_refer_to_each_other_do_not_loop_the_search() -> None:
    one, two = Thing(lock=threading.Lock()), Thing()
    one.two, two.one = two, one  # type: ignore[attr-defined]
    assert culprit(two=two) in ("self.two.one.lock", "self.two.one.two.lock")


def test_lambdas_closures_and_local_classes_travel() -> None:
    offset = 40

    class Local(Spout):
        def __init__(self) -> None:
            self.add = lambda n: n + offset

        def next_tuple(self) -> None:
            pass

    back = pickle.loads(pack(Local(), "spout 's'", Spout))
    assert back.add(2) == 42


def run_main(tmp_path: Path, text: str) -> str:
    script = tmp_path / "job.py"
    script.write_text("import sys\nsys.path.insert(0, sys.argv[1])\n" + text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(ROOT)], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


MAIN = """
import threading, pickle
from topology_api import Bolt
from topology_api.errors import CannotPack
from topology_api.packing import pack

lock = threading.Lock()
word = "by value"

class Main(Bolt):
    def execute(self, tup):
        return %s

class Shared(Bolt):
    lock = threading.Lock()
    def execute(self, tup):
        pass

try:
    data = pack(%s(), "bolt 'b'", Bolt)
    print(b"by value" in data)
except CannotPack as error:
    print(error.attribute)
"""


def test_a_class_of_main_travels_by_value_with_the_globals_it_uses(tmp_path: Path) -> None:
    assert run_main(tmp_path, MAIN % ("word", "Main")) == "True"


def test_an_unpicklable_global_used_by_a_class_of_main_is_named(tmp_path: Path) -> None:
    assert run_main(tmp_path, MAIN % ("lock", "Main")) == "class Main.execute (a function; its global 'lock')"


def test_an_unpicklable_class_attribute_is_named(tmp_path: Path) -> None:
    assert run_main(tmp_path, MAIN % ("word", "Shared")) == "class Shared.lock"


def test_a_class_of_an_importable_module_travels_by_reference() -> None:
    data = pack(Holder(n=1), "bolt 'b'", Bolt)
    assert b"Holder" in data
    assert b"execute" not in data


def test_a_class_that_is_the_type_of_a_state_can_be_packed_again_after_msgspec_has_read_it() -> None:
    @dataclass
    class Visit:
        at: int

    class Colour(Enum):
        RED = "r"

    class Pair(NamedTuple):
        first: int

    class Row(TypedDict):
        first: int

    positive = Annotated[int, msgspec.Meta(ge=0)]
    for kind in (Visit, Colour, Pair, Row, positive, dict[Colour, positive]):
        state = ValueState(kind)
        decoder = msgspec.msgpack.Decoder(kind)
        again = pickle.loads(pack(Holder(state=state), "bolt 'b'", Bolt)).state
        read = msgspec.msgpack.Decoder(again.types[0])
        for value in (Visit(3), Colour.RED, Pair(1), {"first": 1}, 5, {Colour.RED: 5}, -1):
            data = msgspec.msgpack.encode(value)
            assert _text_of(decoder, data) == _text_of(read, data)


def _text_of(decoder: Any, data: bytes) -> str:
    try:
        return repr(decoder.decode(data))
    except msgspec.ValidationError as error:
        return str(error)
