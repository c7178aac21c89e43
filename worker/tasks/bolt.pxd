# The C types of bolt.py.

from squall.transport.frames cimport Batch
from squall.transport.id_columns cimport IdColumn
from squall.transport.row_columns cimport RowColumns
from topology_api.tuples cimport Source, Tuple, leave_out, untrack
from worker.tasks.emitter cimport BoltEmitter
from worker.tasks.task cimport Task
from worker.tracking.ack_batch cimport AckBatch


cdef class BoltTask(Task):
    cdef public object inputs
    cdef public AckBatch xors
    cdef public list timeout_resets
    cdef public object reset_now
    cdef public bint auto_ack
    cdef public bint auto_anchor
    cdef public object execute
    cdef public bint tick_due
    cdef public bint ticked
    cdef public bint end_due
    cdef public bint end_called
    cdef public dict failed_for
    cdef public object probing
    cdef public dict claims
    cdef public bint is_down
    cdef public bint waits_for_stores
    cdef public double failing_since
    cdef public object last_error
    cdef public object on_failure

    cpdef ack_checked(self, Tuple tup)
    cpdef bint wants_run(self) except -1
    cpdef bint crashing(self) except -1
    cpdef tick_if_due(self, bint input_waits)
    cpdef take_input(self, long long most_emits)
    cpdef Py_ssize_t execute_rows(self, Batch batch, Py_ssize_t stop, long long most_emits) except -1
    cpdef finish_if_due(self, long long enough)


cpdef Tuple make_tuple(Batch batch, Py_ssize_t position)
