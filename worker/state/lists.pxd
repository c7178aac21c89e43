# The C types of lists.py.

from worker.state.codecs cimport Codec
from worker.state.expiry cimport Expiry
from worker.state.table cimport StateHandle


cdef class ListCells(StateHandle):
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

    cpdef list first_touch(self, key)
    cpdef Py_ssize_t length_of(self, key) except -1
    cpdef drop(self, key)


cdef class ListHandle(ListCells):
    cpdef begin(self)
    cpdef keep_all(self, Py_ssize_t at=*)
    cpdef undo(self)


cdef class MarkingListHandle(ListHandle):
    cpdef keep_all(self, Py_ssize_t at=*)
    cpdef mark(self, cell)
    cpdef mark_at_hand(self)
    cpdef keep_from(self, key, Py_ssize_t at, list elements, list times)
