# The C types of expiry.py.


cdef class Expiry:
    cdef public double ttl
    cdef public dict written

    cpdef wrote(self, cell, double now)
    cpdef forget(self, cell)
    cpdef restore(self, cell, time)
    cpdef bint is_over(self, cell, double now) except -1
