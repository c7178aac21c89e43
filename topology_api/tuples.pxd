# The C declarations of tuples.py, for the compiler.


cimport cython


cdef extern from *:
    """
    /* Whether a value can be in no cycle: it is of a type that the garbage collector leaves out, or a tuple of such values. The
       collector leaves such a tuple out from its first visit on; here it does so at once, and need not visit it. */
    static int squall_leave_out(PyObject *value) {
        Py_ssize_t at;
        if (!PyType_IS_GC(Py_TYPE(value))) return 1;
        if (!PyTuple_CheckExact(value)) return 0;
        if (!PyObject_GC_IsTracked(value)) return 1;
        for (at = 0; at < PyTuple_GET_SIZE(value); at++) {
            PyObject *inside = PyTuple_GET_ITEM(value, at);
            if (!PyType_IS_GC(Py_TYPE(inside))) continue;
            if (!PyTuple_CheckExact(inside) || PyObject_GC_IsTracked(inside)) return 0;
        }
        PyObject_GC_UnTrack(value);
        return 1;
    }
    """
    bint leave_out "squall_leave_out" (object value) noexcept
    void untrack "PyObject_GC_UnTrack" (object thing) noexcept


@cython.final
cdef class Source:
    cdef public object component
    cdef public object task
    cdef public object stream
    cdef public object fields
    cdef public tuple names
    cdef public dict index


@cython.final
cdef class Tuple:
    cdef public tuple _values
    cdef public Source _source
    cdef public long long _root
    cdef public long long _xor
    cdef public tuple _more
