# The C types of lists.py.

from worker.state.codecs cimport Codec
from worker.state.expiry cimport Expiry
from worker.state.table cimport StateHandle


cdef class ListHandle(StateHandle):
    cdef public Codec codec
    cdef public bint plain
    cdef public dict cells
    cdef public dict times
    cdef public Expiry expiry
    cdef public long long turn
    cdef public Py_ssize_t length
    cdef public list old
    cdef public list old_times
    cdef public object old_written

    cpdef begin(self)
    cpdef keep_all(self)
    cpdef undo(self)
    cpdef kept(self, cell)
    cpdef drop(self, key)


cdef class MarkingListHandle(ListHandle):
    cpdef keep_all(self)
    cpdef mark(self, cell)
    cpdef mark_at_hand(self)
