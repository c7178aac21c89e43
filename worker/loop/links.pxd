# The C types of links.py.

from squall.transport.credit cimport SendWindow
from squall.transport.frames cimport Batch
from worker.routing.outbox cimport Outbox
from worker.tasks.task cimport Task


cdef class Links:
    cdef public object worker
    cdef public dict worker_of
    cdef public object window_of
    cdef public object send
    cdef public object cycles
    cdef public dict tasks
    cdef public dict sending
    cdef public dict receiving
    cdef public dict grants
    cdef public dict waiting
    cdef public dict retry
    cdef public list woken
    cdef public dict dropped
    cdef public Py_ssize_t cycle_buffer
    cdef public set reachable

    cpdef bint flush(self, Task task, what) except -1
    cpdef bint takes_any(self, Outbox box, what) except -1
    cpdef SendWindow window(self, target)
    cpdef number(self, Batch batch, bint credited)
    cpdef forward(self, Batch batch)
    cpdef arrive(self, Batch batch)
    cpdef done(self, Batch batch)
    cpdef granted(self, target, long long upto)
    cpdef bint flush_retries(self) except -1
