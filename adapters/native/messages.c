#include "messages.h"
#include "text.h"

/* Each function accepts a strict subset of what the other parser accepts, with the same result. It returns None for
   everything else, which is then parsed by the other parser: an error has one wording, and a doubt one owner. */

enum { LENGTH_DIGITS = 9, CHUNK_DIGITS = 7, MAX_CHUNKS = 1024 };

static const struct {
    const char *text; /* with the space after it */
    Py_ssize_t size;
} METHODS[] = {{"POST ", 5}, {"GET ", 4}, {"PUT ", 4}, {"DELETE ", 7}, {"HEAD ", 5}, {"PATCH ", 6}, {"OPTIONS ", 8}};
enum { METHOD_COUNT = sizeof METHODS / sizeof *METHODS };
static PyObject *method_names[METHOD_COUNT];

/* The fields of a message, and their effect on its framing. */
typedef struct {
    PyObject *fields; /* a dict of bytes, NULL until it is created */
    Py_ssize_t length; /* the content-length; -1 without one */
    bool has_host, keeps_alive, is_chunked;
} Head;

/* The chunks of a body, within the received bytes. */
typedef struct {
    Span spans[MAX_CHUNKS];
    int count;
    Py_ssize_t total; /* bytes without the framing */
    bool is_last; /* whether the last chunk, which ends the body, is among them */
} Chunks;

typedef enum { FAILED = -1, DECLINED = 0, PARSED = 1 } Outcome;

int init_messages(void) {
    for (int i = 0; i < METHOD_COUNT; i++) {
        method_names[i] = PyUnicode_FromStringAndSize(METHODS[i].text, METHODS[i].size - 1);
        if (method_names[i] == NULL) {
            return -1;
        }
        PyUnicode_InternInPlace(&method_names[i]);
    }
    return 0;
}

static bool skip(const char **at, const char *end, const char *text, Py_ssize_t size) {
    if (end - *at < size || memcmp(*at, text, (size_t)size) != 0) {
        return false;
    }
    *at += size;
    return true;
}

/* Digits of a content-length. Longer numbers than any body of one read are declined. */
static Py_ssize_t length_of(Span value) {
    Py_ssize_t length = 0;
    if (value.size > LENGTH_DIGITS) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < value.size; i++) {
        if (value.start[i] < '0' || value.start[i] > '9') {
            return -1;
        }
        length = length * 10 + (value.start[i] - '0');
    }
    return length;
}

/* The effect of a field on the framing. False if the message is declined. */
static bool frame(Head *head, PyObject *name, Span value) {
    if (name == framing.content_length) {
        head->length = length_of(value);
        return head->length >= 0;
    }
    if (name == framing.connection) {
        head->keeps_alive = equals_ignoring_case(value, "keep-alive");
        return head->keeps_alive || equals_ignoring_case(value, "close");
    }
    if (name == framing.host) {
        head->has_host = true;
        return run_of(value.start, value.start + value.size, IN_HOST) == value.start + value.size;
    }
    if (name == framing.transfer_encoding) {
        head->is_chunked = equals_ignoring_case(value, "chunked");
        return head->is_chunked;
    }
    return name != framing.upgrade && name != framing.expect && name != framing.proxy_connection;
}

static Outcome add(Head *head, Span name_span, Span value_span) {
    Outcome outcome = FAILED;
    PyObject *value = NULL, *name = name_of(name_span);
    if (name == NULL) {
        return FAILED;
    }
    if (!frame(head, name, value_span)) {
        outcome = DECLINED;
    } else if ((value = PyBytes_FromStringAndSize(value_span.start, value_span.size)) != NULL &&
               PyDict_SetItem(head->fields, name, value) == 0) {
        outcome = PARSED;
    }
    Py_XDECREF(value);
    Py_DECREF(name);
    return outcome;
}

/* One line `name: value`. An empty value, or space after a value, is declined. */
static bool take_line(const char **at, const char *end, Span *name, Span *value) {
    const char *p = run_of(*at, end, IN_TOKEN);
    *name = (Span){*at, p - *at};
    if (name->size == 0 || p == end || *p++ != ':') {
        return false;
    }
    while (p < end && (*p == ' ' || *p == '\t')) {
        p++;
    }
    value->start = p;
    p = run_of(p, end, IN_VALUE);
    value->size = p - value->start;
    if (value->size == 0 || p[-1] == ' ' || p[-1] == '\t') {
        return false;
    }
    *at = p;
    return skip(at, end, "\r\n", 2);
}

/* The fields and the blank line after them. A repeated name is declined: its meaning depends on the name. */
static Outcome take_fields(const char **at, const char *end, Head *head, Py_ssize_t max_fields) {
    Py_ssize_t count = 0;
    *head = (Head){.fields = PyDict_New(), .length = -1, .keeps_alive = true};
    if (head->fields == NULL) {
        return FAILED;
    }
    while (!skip(at, end, "\r\n", 2)) {
        Span name, value;
        if (++count > max_fields || !take_line(at, end, &name, &value)) {
            return DECLINED;
        }
        Outcome outcome = add(head, name, value);
        if (outcome != PARSED) {
            return outcome;
        }
    }
    return PyDict_GET_SIZE(head->fields) == count ? PARSED : DECLINED;
}

/* What every function returns for a message that it declines. */
static PyObject *ended(Outcome outcome, Head *head) {
    Py_CLEAR(head->fields);
    if (outcome == FAILED) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *whole_request(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Head head = {.fields = NULL};
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "expected the bytes of a request and the limit on its fields");
        return NULL;
    }
    Py_ssize_t max_fields = PyLong_AsSsize_t(args[1]);
    if (max_fields == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (!PyBytes_CheckExact(args[0])) {
        Py_RETURN_NONE;
    }
    const char *at = PyBytes_AS_STRING(args[0]), *end = at + PyBytes_GET_SIZE(args[0]);
    int method = 0;
    while (method < METHOD_COUNT && !skip(&at, end, METHODS[method].text, METHODS[method].size)) {
        method++;
    }
    if (method == METHOD_COUNT) {
        Py_RETURN_NONE;
    }
    Span target = {at, 0};
    at = run_of(at, end, IN_TARGET);
    target.size = at - target.start;
    if (target.size == 0 || target.start[0] != '/' || !skip(&at, end, " HTTP/1.1\r\n", 11)) {
        Py_RETURN_NONE;
    }
    Outcome outcome = take_fields(&at, end, &head, max_fields);
    if (outcome != PARSED) {
        return ended(outcome, &head);
    }
    if (!head.has_host || head.is_chunked || end - at != (head.length < 0 ? 0 : head.length)) {
        return ended(DECLINED, &head);
    }
    return Py_BuildValue(
        "(Oy#NOy#)", method_names[method], target.start, target.size, head.fields,
        head.keeps_alive ? Py_True : Py_False, at, end - at
    );
}

/* `HTTP/1.1 200 OK`, of a response that may have a body. Returns 0 for any other line. */
static int take_status(const char **at, const char *end) {
    int status = 0;
    if (!skip(at, end, "HTTP/1.1 ", 9) || end - *at < 4) {
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        char c = *(*at)++;
        if (c < '0' || c > '9') {
            return 0;
        }
        status = status * 10 + (c - '0');
    }
    if (*(*at)++ != ' ' || status < 200 || status > 599 || status == 204 || status == 304) {
        return 0;
    }
    *at = run_of(*at, end, IN_VALUE);
    return skip(at, end, "\r\n", 2) ? status : 0;
}

/* The size of a chunk; -1 for a line that is declined: an extension, or a long number. */
static Py_ssize_t take_size(const char **at, const char *end) {
    Py_ssize_t size = 0;
    int digits = 0;
    for (; *at < end && digits <= CHUNK_DIGITS; (*at)++, digits++) {
        char c = **at;
        if (c >= '0' && c <= '9') {
            size = size * 16 + (c - '0');
        } else if (c >= 'a' && c <= 'f') {
            size = size * 16 + (c - 'a' + 10);
        } else if (c >= 'A' && c <= 'F') {
            size = size * 16 + (c - 'A' + 10);
        } else {
            break;
        }
    }
    return digits > 0 && digits <= CHUNK_DIGITS && skip(at, end, "\r\n", 2) ? size : -1;
}

static PyObject *joined(const Chunks *chunks) {
    PyObject *body = PyBytes_FromStringAndSize(NULL, chunks->total);
    if (body != NULL) {
        char *to = PyBytes_AS_STRING(body);
        for (int i = 0; i < chunks->count; i++) {
            memcpy(to, chunks->spans[i].start, (size_t)chunks->spans[i].size);
            to += chunks->spans[i].size;
        }
    }
    return body;
}

/* Whole chunks up to `end`, perhaps with the last one. False if they are declined. */
static bool take_chunks(const char *at, const char *end, Chunks *chunks) {
    chunks->count = 0;
    chunks->total = 0;
    chunks->is_last = false;
    while (at < end) {
        Py_ssize_t size = take_size(&at, end);
        if (size < 0 || chunks->is_last || chunks->count == MAX_CHUNKS || end - at < size) {
            return false;
        }
        if (size == 0) {
            chunks->is_last = true; /* a trailer is declined: only the blank line follows */
        } else {
            chunks->spans[chunks->count++] = (Span){at, size};
            chunks->total += size;
            at += size;
        }
        if (!skip(&at, end, "\r\n", 2)) {
            return false;
        }
    }
    return true;
}

PyObject *whole_response(PyObject *module, PyObject *data) {
    Head head = {.fields = NULL};
    if (!PyBytes_CheckExact(data)) {
        Py_RETURN_NONE;
    }
    const char *at = PyBytes_AS_STRING(data), *end = at + PyBytes_GET_SIZE(data);
    int status = take_status(&at, end);
    if (status == 0) {
        Py_RETURN_NONE;
    }
    Outcome outcome = take_fields(&at, end, &head, PY_SSIZE_T_MAX);
    if (outcome != PARSED) {
        return ended(outcome, &head);
    }
    PyObject *keeps_alive = head.keeps_alive ? Py_True : Py_False;
    if (!head.is_chunked && end - at == head.length) {
        return Py_BuildValue("(iNOy#O)", status, head.fields, keeps_alive, at, end - at, Py_True);
    }
    Chunks chunks;
    if (!head.is_chunked || head.length >= 0 || !take_chunks(at, end, &chunks)) {
        return ended(DECLINED, &head);
    }
    PyObject *body = joined(&chunks);
    if (body == NULL) {
        return ended(FAILED, &head);
    }
    PyObject *is_complete = chunks.is_last ? Py_True : Py_False;
    return Py_BuildValue("(iNONO)", status, head.fields, keeps_alive, body, is_complete);
}

PyObject *whole_chunks(PyObject *module, PyObject *data) {
    Chunks chunks;
    if (!PyBytes_CheckExact(data)) {
        Py_RETURN_NONE;
    }
    const char *at = PyBytes_AS_STRING(data);
    if (!take_chunks(at, at + PyBytes_GET_SIZE(data), &chunks)) {
        Py_RETURN_NONE;
    }
    PyObject *body = joined(&chunks);
    return body == NULL ? NULL : Py_BuildValue("(NO)", body, chunks.is_last ? Py_True : Py_False);
}
