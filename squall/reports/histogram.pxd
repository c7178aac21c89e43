# The C types of histogram.py.


cdef class LatencyHistogram:
    cdef public dict buckets
    cdef public object count
    cdef public object least
    cdef public object greatest

    cpdef add(self, value, count=*)
