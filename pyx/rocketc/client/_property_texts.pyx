# cython: language_level=3
"""The properties of a message that a program sends."""
from cpython.exc cimport PyErr_Clear
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t
from libc.string cimport memchr

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(PyObject* text, Py_ssize_t* size)


cdef const uint8_t* property_of(object text, Py_ssize_t* size) noexcept:
    """Return the value of a property in UTF-8, and its size. NULL: only the general way may know what to do with it."""
    cdef const uint8_t* found
    if type(text) is not str:
        return NULL
    found = <const uint8_t*>PyUnicode_AsUTF8AndSize(<PyObject*>text, size)
    if found == NULL:
        PyErr_Clear()
        return NULL
    if size[0] == 0 or size[0] > TEXT_MOST:
        return NULL
    if memchr(found, 1, <size_t>size[0]) != NULL or memchr(found, 2, <size_t>size[0]) != NULL:
        return NULL
    return found
