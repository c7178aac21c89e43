# The C types of executor.py.

from squall.transport.frames cimport Batch
from squall.transport.id_columns cimport IdColumn
from squall.transport.row_columns cimport RowColumns
from topology_api.tuples cimport Source, Tuple
from worker.tasks.emitter cimport BoltEmitter


cpdef Tuple make_tuple(Batch batch, Py_ssize_t position)
