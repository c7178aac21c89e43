# The C types of timing_wheel.py.


cdef class TimingWheel:
    cdef public double tick_length
    cdef public long long tick
    cdef public long long turned
    cdef public list stamps
    cdef public bytearray inside
    cdef public list spokes

    cpdef grow(self, Py_ssize_t slots)
    cpdef set_time(self, double now)
    cpdef int stamp(self, Py_ssize_t slot) except -1
