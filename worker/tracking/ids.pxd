# The C types of ids.py.

from worker.routing.text_hash cimport mix


cpdef long long next_root(long long root) noexcept


cdef class SplitMix:
    cdef public unsigned long long state

    cpdef long long draw(self) except? -1
