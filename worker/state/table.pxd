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


cdef class StateHandle:
    cdef public StateTable table
    cdef public object name

    cpdef undo(self)
