/* Rows of a table that several processes share. See adapters/native/__init__.py for the contract. */

#ifndef HEADRACE_ROWS_H
#define HEADRACE_ROWS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Add the type `Row` to the module. Returns -1 with an exception set. */
int add_row_type(PyObject *module);

#endif
