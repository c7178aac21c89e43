# The C declarations of credit.py, for the compiler.


cdef class SendWindow:
    cdef public Py_ssize_t window
    cdef public long long sent
    cdef public long long granted
    cdef public bint closed

    cpdef long long next_frame(self) except -1
    cpdef bint grant(self, long long upto) except -1


cdef class ReceiveWindow:
    cdef public Py_ssize_t window
    cdef public long long executed
    cdef public bint over

    cpdef long long confirm(self, long long frame) except -1


cdef class FrameLimit:
    cdef public Py_ssize_t most
    cdef public Py_ssize_t tuples
