# The C types of plain_values.py.

cimport cython

from worker.routing.text_hash cimport text_hash
from worker.state.table cimport StateTable
from worker.state.values cimport ValueHandle


cdef extern from "Python.h":
    object generic_get "PyObject_GenericGetAttr" (object owner, object name)
    int generic_set "PyObject_GenericSetAttr" (object owner, object name, object value) except -1


@cython.final
cdef class ValueCell:
    cdef public object key
    cdef public object now
    cdef public object before
    cdef public long long epoch


@cython.final
cdef class RecentValues:
    cdef public object divided
    cdef public list ranges
    cdef public list lists
    cdef public list rest
    cdef public Py_ssize_t groups
    cdef public list by_group
    cdef public Py_ssize_t count
    cdef public list older


cdef class PlainValueHandle(ValueHandle):
    cdef public RecentValues recent
    cdef public object groups
    cdef public long long epoch
    cdef public Py_ssize_t absent
    cdef public list cleared
    cdef public ValueCell cell
    cdef public long long read_turn

    cdef read(self)
    cdef write(self, new)
    cdef begin(self, StateTable table)
    cpdef ValueCell found(self, key)
    cpdef remove(self, ValueCell cell)
    cpdef bring_back_cells(self, list cells)
    cpdef undo(self)
    cpdef mark_at_hand(self)
    cpdef kept(self, cell)


cpdef ValueCell cell_of(key, value)


@cython.locals(number=Py_ssize_t, at=Py_ssize_t, found=list)
cpdef Py_ssize_t spread_cells(list cells, list lists) except -1
