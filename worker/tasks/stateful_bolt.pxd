# The C types of stateful_bolt.py.

from squall.transport.frames cimport Batch
from squall.transport.id_columns cimport IdColumn
from squall.transport.row_columns cimport RowColumns
from topology_api.tuples cimport Source, Tuple
from worker.state.plain_values cimport PlainValueHandle
from worker.state.table cimport StateTable
from worker.tasks.bolt cimport BoltTask
from worker.tasks.holding cimport HoldingEmitter


cdef class StatefulBoltTask(BoltTask):
    cdef public object positions
    cdef public StateTable table
    cdef public dict states
    cdef public list expiring
    cdef public PlainValueHandle looked_up
    cdef public object timers
    cdef public dict retried
    cdef public bint firing
    cdef public double end_due_at
    cdef public list finals
    cdef public object watch

    cpdef commit(self)
    cpdef undo(self)
    cpdef bint wants_run(self) except -1
    cpdef finish_if_due(self, long long enough)
    cpdef Py_ssize_t execute_rows(self, Batch batch, Py_ssize_t stop, long long most_emits) except -1


cdef keep_call(HoldingEmitter emitter, StateTable table)
cdef list keys_ahead(PlainValueHandle handle, RowColumns rows, Py_ssize_t only)
cpdef key_of(tuple values, tuple positions)
