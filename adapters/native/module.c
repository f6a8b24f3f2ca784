/* The extension module `adapters.native._core`. */

#include "fields.h"
#include "messages.h"
#include "rows.h"
#include "text.h"

static PyMethodDef methods[] = {
    {"whole_request", (PyCFunction)(void (*)(void))whole_request, METH_FASTCALL, NULL},
    {"whole_response", whole_response, METH_O, NULL},
    {"whole_chunks", whole_chunks, METH_O, NULL},
    {"encoded_fields", encoded_fields, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "adapters.native._core", .m_size = -1, .m_methods = methods,
};

PyMODINIT_FUNC PyInit__core(void) {
    if (init_text() < 0 || init_messages() < 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && add_row_type(module) < 0) {
        Py_CLEAR(module);
    }
    return module;
}
