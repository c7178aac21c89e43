# What the compiler makes of settling.py.

from worker.xors cimport XorBatch


cdef class Settling:
    cdef public object worker
    cdef public object worker_of
    cdef public object only
    cdef public dict spouts
    cdef public XorBatch shared
    cdef public dict controls
    cdef public object waiting
    cdef public double took
    cdef public list late_held

    cpdef control(self, worker)
    cpdef take(self, task, double now)
    cpdef take_xors(self, XorBatch batch)
    cpdef bint advance(self, clock, double seconds) except -1
    cpdef bring(self, portion)
    cpdef xors(self, spout, columns)
