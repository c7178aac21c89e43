# The C types of epoch_emitter.py.

from worker.routing.outbox cimport Outbox
from worker.routing.router cimport StreamOutput
from worker.tasks.emitter cimport SpoutEmitter


cdef extern from "pythread.h":
    unsigned long get_ident "PyThread_get_thread_ident" () nogil


cdef class EpochSpoutEmitter(SpoutEmitter):
    cdef public object emissions
    cdef public bint rewindable
