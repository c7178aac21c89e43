# The C declarations of tuples.py, for the compiler.


cimport cython


@cython.final
cdef class Source:
    cdef public object component
    cdef public object task
    cdef public object stream
    cdef public object fields
    cdef public tuple names
    cdef public dict index


@cython.final
cdef class Tuple:
    cdef public tuple _values
    cdef public Source _source
    cdef public long long _root
    cdef public long long _xor
    cdef public tuple _more
