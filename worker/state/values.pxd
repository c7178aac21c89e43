# The C types of values.py.

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
