# The C declarations of row_columns.py, for the compiler.

cdef extern from *:
    """
    /* The values at a position of a first column and of others. */
    static PyObject *squall_row(PyObject *first, PyObject *others, Py_ssize_t at) {
        Py_ssize_t place, arity = PyList_GET_SIZE(others) + 1;
        PyObject *row = PyTuple_New(arity);
        for (place = 0; row != NULL && place < arity; place++) {
            PyObject *column = place ? PyList_GET_ITEM(others, place - 1) : first;
            if (!PyList_Check(column) || at < 0 || at >= PyList_GET_SIZE(column)) {
                PyErr_SetString(PyExc_IndexError, "a column is shorter than the others");
                Py_CLEAR(row);
            } else {
                PyTuple_SET_ITEM(row, place, Py_NewRef(PyList_GET_ITEM(column, at)));
            }
        }
        return row;
    }
    """
    tuple row_of "squall_row" (list first, list others, Py_ssize_t at)


cdef class RowColumns:
    cdef public Py_ssize_t arity
    cdef public Py_ssize_t count
    cdef public list first
    cdef public list others

    cpdef append(self, tuple row)
    cpdef tuple row(self, Py_ssize_t at)
