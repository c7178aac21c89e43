# The C types of work_time.py.

from squall.reports.histogram cimport LatencyHistogram


cdef class WorkTime:
    cdef public LatencyHistogram calls
    cdef public double seconds
    cdef public object usual
    cdef public object samples

    cpdef took(self, Py_ssize_t calls, double seconds)
