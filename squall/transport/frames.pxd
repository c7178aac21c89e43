# The C declarations of frames.py, for the compiler.

from squall.transport.id_columns cimport IdColumn
from squall.transport.row_columns cimport RowColumns
from topology_api.tuples cimport Source


cdef class Batch:
    cdef public Source source
    cdef public object target
    cdef public RowColumns rows
    cdef public IdColumn roots
    cdef public IdColumn edges
    cdef public dict more
    cdef public object sender
    cdef public object frame
    cdef public object cycle
    cdef public bint ended
    cdef public Py_ssize_t position
    cdef public object limit
    cdef public object skipped
    cdef public object window
