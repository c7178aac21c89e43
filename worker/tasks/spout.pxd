# What the compiler makes of spout_task.py.

from worker.emitter cimport SpoutEmitter
from worker.task cimport Task
from worker.tracker cimport Tracker


cdef class SpoutTask(Task):
    cdef public Tracker tracker
    cdef public object max_pending
    cdef public double empty_wait
    cdef public object replay
    cdef public bint active
    cdef public bint draining
    cdef public bint finished
    cdef public bint stopping
    cdef public list replays
    cdef public long long replay_number
    cdef public long long replayed
    cdef public list late_xors
    cdef public list late_failures
    cdef public double not_before
    cdef public double asked_until
    cdef public long long empties
    cdef public bint woken
    cdef public long long besides
    cdef public bint verdicts_emit
    cdef public long long errors_in_a_row
    cdef public object latency
    cdef public dict given_up
    cdef public object first_failure
    cdef public object calls_an_instant
    cdef public double instant
    cdef public long long instant_calls
    cdef public object next_tuple
    cdef public bint tells_acks

    cpdef bint at_limit(self) except -1
    cpdef bint full(self) except -1
    cpdef bint verdicts_due(self) except -1
    cpdef set_time(self, double now)
    cpdef call_next_tuple(self, double now, long long most_emits)
    cpdef set_wait(self, object wait, bint empty, double now)
    cpdef give_verdicts(self, double now, double enough)
    cpdef list tell_acks(self, list emissions, double enough)
    cpdef add_latencies(self, list completed, double now)
    cpdef emit_replays(self, double now, long long enough)
