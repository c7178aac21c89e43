# The C types of holding.py.

from squall.transport.row_columns cimport RowColumns
from topology_api.tuples cimport Tuple
from worker.routing.outbox cimport Outbox
from worker.routing.router cimport Route, StreamOutput
from worker.tasks.emitter cimport BoltEmitter


cdef extern from "pythread.h":
    unsigned long get_ident "PyThread_get_thread_ident" () nogil


cdef class HoldingEmitter(BoltEmitter):
    cdef public list boxes_filled
    cdef public Py_ssize_t filled
    cdef public list held
    cdef public bint holds_all

    cpdef bint holds(self) except -1
    cpdef release(self)
    cpdef send(self, tuple row, list boxes, list anchors, stream)
    cpdef drop(self)
