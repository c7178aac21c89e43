# The C types of holding.py.

from worker.routing.router cimport StreamOutput
from worker.tasks.emitter cimport BoltEmitter


cdef extern from "pythread.h":
    unsigned long get_ident "PyThread_get_thread_ident" () nogil


cdef class HoldingEmitter(BoltEmitter):
    cdef public list held

    cpdef release(self)
    cpdef send(self, tuple row, list boxes, list anchors, stream)
    cpdef drop(self)
