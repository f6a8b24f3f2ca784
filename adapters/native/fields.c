#include "fields.h"
#include "text.h"

enum { FAILED = -2, DECLINED = -1 };

/* The size of a text in Latin-1. FAILED for a line break, DECLINED for anything but a text. */
static Py_ssize_t size_of(PyObject *text) {
    if (!PyUnicode_Check(text) || PyUnicode_READY(text) < 0) {
        return DECLINED;
    }
    Py_ssize_t size = PyUnicode_GET_LENGTH(text);
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    if (kind == PyUnicode_1BYTE_KIND) {
        return memchr(data, '\n', (size_t)size) || memchr(data, '\r', (size_t)size) ? FAILED : size;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        Py_UCS4 c = PyUnicode_READ(kind, data, i);
        if (c == '\n' || c == '\r') {
            return FAILED;
        }
    }
    return size;
}

static char *write_text(char *to, PyObject *text) {
    Py_ssize_t size = PyUnicode_GET_LENGTH(text);
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    if (kind == PyUnicode_1BYTE_KIND) {
        memcpy(to, data, (size_t)size);
        return to + size;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        Py_UCS4 c = PyUnicode_READ(kind, data, i);
        *to++ = c < 256 ? (char)c : '?';
    }
    return to;
}

/* The bytes of all fields, or FAILED, or DECLINED. */
static Py_ssize_t total_of(PyObject *const *fields, Py_ssize_t count) {
    Py_ssize_t total = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *field = fields[i];
        if (!PyTuple_CheckExact(field) || PyTuple_GET_SIZE(field) != 2) {
            return DECLINED;
        }
        Py_ssize_t name = size_of(PyTuple_GET_ITEM(field, 0)), value = size_of(PyTuple_GET_ITEM(field, 1));
        if (name < 0 || value < 0) {
            return name < value ? name : value;
        }
        total += name + value + 4;
    }
    return total;
}

PyObject *encoded_fields(PyObject *module, PyObject *fields) {
    if (!PyList_CheckExact(fields) && !PyTuple_CheckExact(fields)) {
        Py_RETURN_NONE;
    }
    PyObject *const *items = PySequence_Fast_ITEMS(fields);
    Py_ssize_t count = PySequence_Fast_GET_SIZE(fields), total = total_of(items, count);
    if (total == FAILED) {
        PyErr_SetString(PyExc_ValueError, "a header field holds a line break");
        return NULL;
    }
    if (total == DECLINED) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *encoded = PyBytes_FromStringAndSize(NULL, total);
    if (encoded == NULL) {
        return NULL;
    }
    char *to = PyBytes_AS_STRING(encoded);
    for (Py_ssize_t i = 0; i < count; i++) {
        to = write_text(to, PyTuple_GET_ITEM(items[i], 0));
        memcpy(to, ": ", 2);
        to = write_text(to + 2, PyTuple_GET_ITEM(items[i], 1));
        memcpy(to, "\r\n", 2);
        to += 2;
    }
    return encoded;
}
