# The C types of tracker.py.

from worker.tracking.ids cimport next_root
from worker.tracking.timing_wheel cimport TimingWheel


cdef class Tracker:
    cdef public object task
    cdef public object generation
    cdef public long long[::1] roots
    cdef public long long[::1] xors
    cdef public Py_ssize_t size
    cdef public list emissions
    cdef public object free
    cdef public TimingWheel wheel
    cdef public bint acking
    cdef public Py_ssize_t pending
    cdef public dict holders
    cdef public bint peer_ended
    cdef public long long last_loss
    cdef public list completed
    cdef public list failed
    cdef public list untracked

    cpdef long long open(self, tuple emission) except? -1
    cpdef int start(self, long long root, long long xor) except -1
    cpdef int forget(self, long long root) except -1
    cpdef merge(self, roots, xors)
    cpdef complete_all(self, list slots)
    cpdef fail(self, long long root, failure)
    cpdef int close(self, Py_ssize_t slot) except -1
    cpdef grow(self)
    cpdef add_slots(self, list roots)
