# The C types of emitter.py.

from squall.transport.row_columns cimport RowColumns
from topology_api.tuples cimport Source, Tuple, leave_out, untrack
from worker.tracking.ids cimport SplitMix
from worker.routing.outbox cimport Outbox
from worker.routing.router cimport StreamOutput, Route
from worker.tracking.tracker cimport Tracker


cdef extern from "pythread.h":
    unsigned long get_ident "PyThread_get_thread_ident" () nogil


cdef class Emitter:
    cdef public object component
    cdef public object task
    cdef public dict outputs
    cdef public StreamOutput default
    cdef public object random
    cdef public SplitMix edges
    cdef public list dirty
    cdef public long long emitted
    cdef public unsigned long owner
    cdef public object why_not

    cpdef tuple row(self, values)
    cpdef int put(self, Outbox box, tuple row, list roots) except -1
    cpdef long long edge(self) except? -1


cdef class BoltEmitter(Emitter):
    cdef public Tuple anchor

    cpdef list trees(self, anchors)
    cpdef spread(self, tuple row, list boxes, list anchors)


cdef class SpoutEmitter(Emitter):
    cdef public Tracker tracker
    cdef public double now

    cpdef track(self, tuple emission)
