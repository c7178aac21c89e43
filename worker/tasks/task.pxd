# The C types of task.py.

from worker.tasks.emitter cimport Emitter
from worker.tasks.work_time cimport WorkTime


cdef class Pace:
    cdef public Py_ssize_t count

    cpdef took(self, Py_ssize_t calls, double seconds)


cdef class Task:
    cdef public Emitter emitter
    cdef public object spec
    cdef public object id
    cdef public object process
    cdef public object instance
    cdef public object context
    cdef public object limits
    cdef public object now
    cdef public Pace pace
    cdef public WorkTime work
    cdef public object inbox
    cdef public bint opened
    cdef public bint closed
    cdef public Py_ssize_t jobs
    cdef public double busy_since
    cdef public object waits_for
    cdef public bint stopped
    cdef public bint blocked
    cdef public bint ended
    cdef public long long executed
    cdef public long long acked
    cdef public long long failed
    cdef public bint crash_on_error
    cdef public double hang_secs
    cdef public bint threaded
    cdef public object calls
    cdef public bint yielded
    cdef public object metrics
    cdef public object observer
    cdef public long long flushed_at
    cdef public bint queued
    cdef public dict notices
    cdef public list done
    cdef public list failures
    cdef public list reports
    cdef public object abandoned
    cdef public object on_out_of_memory
    cdef public object mark
