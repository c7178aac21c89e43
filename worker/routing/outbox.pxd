# The C types of outbox.py.

from squall.transport.id_columns cimport IdColumn
from squall.transport.row_columns cimport RowColumns
from topology_api.tuples cimport Source


cdef class Outbox:
    cdef public Source source
    cdef public object target
    cdef public bint credited
    cdef public object cycle
    cdef public object limit
    cdef public RowColumns rows
    cdef public IdColumn roots
    cdef public IdColumn edges
    cdef public dict more

    cpdef RowColumns begin(self)
    cpdef int add(self, tuple row, list roots) except -1
