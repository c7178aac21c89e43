# The C types of values.py.

cimport cython

from worker.state.codecs cimport Codec
from worker.state.expiry cimport Expiry
from worker.state.table cimport StateHandle, StateTable


cdef class ValueHandle(StateHandle):
    cdef public Codec codec
    cdef public object default
    cdef public bint keyed
    cdef public bint plain
    cdef public object exact
    cdef public dict cells
    cdef public Expiry expiry
    cdef public long long turn
    cdef public object old
    cdef public bint encoded
    cdef public object old_written

    cpdef first_touch(self, key)
    cpdef keep_old(self, key)
    cpdef undo(self)
    cpdef mark_at_hand(self)
    cpdef kept(self, cell)


@cython.final
cdef class RecentValue:
    cdef public object before
    cdef public object now


cdef class PlainValueHandle(ValueHandle):
    cdef public dict leaving
    cdef public object left
    cdef public list fresh
    cdef public Py_ssize_t grown
    cdef public RecentValue record
    cdef public long long read_turn
    cdef public object read

    cdef begin(self, StateTable table)
    cpdef older(self, key)
    cpdef undo(self)
    cpdef mark_at_hand(self)
    cpdef kept(self, cell)
