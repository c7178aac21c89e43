# The C types of spout_wait.py.


cdef class SpoutWait:
    cdef public double empty_wait
    cdef public double not_before
    cdef public double asked_until
    cdef public long long empties
    cdef public long long errors_in_a_row
    cdef public bint woken
    cdef public object calls_an_instant
    cdef public double instant
    cdef public long long instant_calls

    cpdef emitted(self, bint empty, bint finished, double now)
