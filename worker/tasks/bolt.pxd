# What the compiler makes of bolt_task.py.

from worker.task cimport Task
from worker.xors cimport XorBatch


cdef class BoltTask(Task):
    cdef public object inputs
    cdef public XorBatch xors
    cdef public list touched
    cdef public bint auto_ack
    cdef public bint auto_anchor
    cdef public object execute
    cdef public bint tick_due
    cdef public bint ticked
    cdef public bint end_due
    cdef public bint end_called
    cdef public object on_failure

    cpdef bint wants_run(self) except -1
    cpdef bint crashing(self) except -1
    cpdef tick_if_due(self, bint input_waits)
    cpdef take_input(self, long long most_emits)
    cpdef finish_if_due(self, long long enough)
