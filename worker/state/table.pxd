# The C types of table.py.


cdef class StateHandle


cdef class StateTable:
    cdef public object where
    cdef public object now
    cdef public object key
    cdef public object none
    cdef public bint for_all
    cdef public long long turn
    cdef public StateHandle first
    cdef public list others
    cdef public dict handles

    cpdef begin(self, key)
    cpdef add_changed(self, StateHandle handle)
    cpdef undo(self)
    cpdef commit(self)
    cpdef end(self)


cdef class MarkingTable(StateTable):
    cpdef add_changed(self, StateHandle handle)


cdef class StateHandle:
    cdef public StateTable table
    cdef public object name
    cdef public object touched
    cdef public dict raw
    cdef public long long moves

    cpdef mark(self, cell)
    cpdef mark_at_hand(self)
    cpdef kept(self, cell)
    cpdef undo(self)
