# The C types of codecs.py.


cdef class Codec:
    cdef public object kind
    cdef public bint pickled
    cdef public bint plain
    cdef public object exact
    cdef public object decoder
