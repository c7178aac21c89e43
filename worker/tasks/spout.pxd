# The C types of spout.py.

from worker.tasks.emitter cimport SpoutEmitter
from worker.tasks.spout_wait cimport SpoutWait
from worker.tasks.task cimport Task
from worker.tracking.tracker cimport Tracker


cpdef add_latencies(latency, list completed, double now, double start)


cdef class SpoutTask(Task):
    cdef public Tracker tracker
    cdef public object max_pending
    cdef public Py_ssize_t letter_places
    cdef public SpoutWait wait
    cdef public object replay
    cdef public object outages
    cdef public list to_tell
    cdef public Py_ssize_t undecided
    cdef public object letters
    cdef public bint active
    cdef public bint draining
    cdef public bint finished
    cdef public bint stopping
    cdef public bint acking
    cdef public list replays
    cdef public long long replay_number
    cdef public long long replayed
    cdef public list late_xors
    cdef public list late_failures
    cdef public long long besides
    cdef public bint final_calls_emit
    cdef public object latency
    cdef public double measured_from
    cdef public dict given_up
    cdef public object first_failure
    cdef public object reading
    cdef public object next_tuple
    cdef public bint has_ack
    cdef public object ack_many

    cpdef bint at_limit(self) except -1
    cpdef bint full(self) except -1
    cpdef bint final_calls_due(self) except -1
    cpdef set_time(self, double now)
    cpdef call_next_tuple(self, double now, long long most_emits)
    cpdef make_final_calls(self, double now, double enough)
    cpdef list give_acks(self, list emissions, double enough)
    cpdef emit_replays(self, double now, long long enough)
