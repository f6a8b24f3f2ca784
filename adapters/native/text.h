/* The characters of HTTP/1.1 (RFC 9110 5, RFC 9112), and names of fields in lower case. */

#ifndef HEADRACE_TEXT_H
#define HEADRACE_TEXT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <string.h>

enum {
    IN_TOKEN = 1,  /* tchar */
    IN_VALUE = 2,  /* field-vchar, SP and HTAB */
    IN_TARGET = 4, /* a visible character other than "#" */
    IN_HOST = 8,   /* as in `HOST_CHARACTERS` of adapters/http1/incoming.py */
};

/* Classes of each byte. `init_text` fills the table. */
extern unsigned char char_class[256];

/* A run of bytes of a message. */
typedef struct {
    const char *start;
    Py_ssize_t size;
} Span;

/* The names that determine how a message is framed; `name_of` returns these very objects. */
typedef struct {
    PyObject *connection, *content_length, *host;
    /* A message with one of these is left to the other parser. */
    PyObject *expect, *proxy_connection, *transfer_encoding, *upgrade;
} FramingNames;
extern FramingNames framing;

/* Create the tables. Returns -1 with an exception set. */
int init_text(void);

/* A new reference to a field's name in lower case; NULL with an exception set. */
PyObject *name_of(Span name);

/* Whether two texts are equal without regard to case; `lower` is in lower case. */
bool equals_ignoring_case(Span text, const char *lower);

/* The end of the run of bytes of a class that begins at `at`. */
static inline const char *run_of(const char *at, const char *end, unsigned char class) {
    while (at < end && (char_class[(unsigned char)*at] & class)) {
        at++;
    }
    return at;
}

#endif
