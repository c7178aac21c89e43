# The C types of ack_batch.py.

from squall.transport.id_columns cimport IdColumn
from topology_api.tuples cimport Tuple


cdef class AckBatch:
    cdef public IdColumn roots
    cdef public IdColumn xors

    cpdef add(self, long long root, long long xor)
    cpdef add_tuple(self, Tuple tup)
