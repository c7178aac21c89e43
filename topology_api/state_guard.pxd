# The C types of state_guard.py.

cdef extern from "Python.h":
    int generic_set "PyObject_GenericSetAttr" (object owner, object name, object value) except -1


cdef extern from *:
    """
    static void squall_freeze(PyObject *cls) {  /* as PyType_Freeze of Python 3.14 */
        ((PyTypeObject *)cls)->tp_flags |= Py_TPFLAGS_IMMUTABLETYPE;
        PyType_Modified((PyTypeObject *)cls);
    }
    """
    void freeze "squall_freeze" (object cls)
