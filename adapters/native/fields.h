/* Fields of a message as bytes. See adapters/native/__init__.py for the contract. */

#ifndef HEADRACE_FIELDS_H
#define HEADRACE_FIELDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *encoded_fields(PyObject *module, PyObject *fields);

#endif
