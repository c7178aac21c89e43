# The C declarations of id_columns.py, for the compiler.

from cpython.array cimport array, resize


cdef class IdColumn:
    cdef array items
    cdef long long* data
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t room

    cdef int hold(self, array items) except -1
    cpdef int append(self, long long item) except -1
    cdef int grow(self, Py_ssize_t least) except -1
    cpdef long long get(self, Py_ssize_t at) except? -1
    cpdef int put(self, Py_ssize_t at, long long item) except -1
    cpdef long long pop(self) except? -1
    cpdef array used(self)

