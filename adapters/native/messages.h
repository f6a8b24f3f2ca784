/* HTTP/1.1 messages that arrived whole. See adapters/native/__init__.py for the contract of each function. */

#ifndef HEADRACE_MESSAGES_H
#define HEADRACE_MESSAGES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *whole_request(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *whole_response(PyObject *module, PyObject *data);
PyObject *whole_chunks(PyObject *module, PyObject *data);

/* Create the objects that the functions return. Returns -1 with an exception set. */
int init_messages(void);

#endif
