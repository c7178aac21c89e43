# The C types of ack_router.py.

from worker.tracking.ack_batch cimport AckBatch


cdef class AckRouter:
    cdef public object worker
    cdef public object worker_of
    cdef public object only
    cdef public dict spouts
    cdef public AckBatch shared
    cdef public dict controls
    cdef public object queued
    cdef public double took
    cdef public list late_keep_alives
    cdef public object resets

    cpdef control(self, worker)
    cpdef collect(self, task, double now)
    cpdef collect_acks(self, AckBatch batch)
    cpdef bint advance(self, clock, double seconds) except -1
    cpdef route(self, portion)
    cpdef route_acks(self, spout, columns)
