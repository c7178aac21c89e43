# The C declarations of row_columns.py, for the compiler.


cdef class RowColumns:
    cdef public Py_ssize_t arity
    cdef public Py_ssize_t count
    cdef public list first
    cdef public list others

    cpdef append(self, tuple row)
    cpdef tuple row(self, Py_ssize_t at)
