#include "text.h"

/* Names that most messages have. A name in this table costs no allocation, and its hash is computed once. */
static const char *const COMMON[] = {
    "accept", "accept-encoding", "accept-language", "access-control-request-headers", "access-control-request-method",
    "api-key", "anthropic-beta", "anthropic-version", "authorization", "baggage", "cache-control", "connection",
    "content-encoding", "content-length", "content-type", "cookie", "date", "expect", "expires", "forwarded", "from",
    "host", "idempotency-key", "inference-header-content-length", "keep-alive", "openai-organization",
    "openai-processing-ms", "openai-project", "openai-version", "origin", "pragma", "priority", "proxy-connection",
    "referer", "retry-after", "sec-fetch-mode", "server", "set-cookie", "te", "traceparent", "tracestate", "trailer",
    "transfer-encoding", "upgrade", "user-agent", "vary", "via", "x-api-key", "x-forwarded-for", "x-forwarded-host",
    "x-forwarded-proto", "x-real-ip", "x-request-id", "x-stainless-arch", "x-stainless-async", "x-stainless-lang",
    "x-stainless-os", "x-stainless-package-version", "x-stainless-read-timeout", "x-stainless-retry-count",
    "x-stainless-runtime", "x-stainless-runtime-version",
};

enum { TABLE_SIZE = 256, LONGEST = 64 };

unsigned char char_class[256];
FramingNames framing;
static PyObject *table[TABLE_SIZE]; /* open addressing */

static void classify(void) {
    for (int c = 0x21; c < 0x7f; c++) {
        char_class[c] = IN_VALUE;
        char_class[c] |= strchr("\"(),/:;<=>?@[\\]{}", c) == NULL ? IN_TOKEN : 0;
        char_class[c] |= c != '#' ? IN_TARGET : 0;
        char_class[c] |= strchr("\"#/<>?@\\^`{|}", c) == NULL ? IN_HOST : 0;
    }
    for (int c = 0x80; c < 0x100; c++) {
        char_class[c] = IN_VALUE;
    }
    char_class[' '] = char_class['\t'] = IN_VALUE;
}

static unsigned hash_of(const char *name, Py_ssize_t size) {
    unsigned hash = 2166136261u; /* FNV-1a: the table is fixed, so a client can lengthen no chain */
    for (Py_ssize_t i = 0; i < size; i++) {
        hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    }
    return hash ^ hash >> 16;
}

/* The place of a name in the table: its own, or the free one. */
static PyObject **place_of(const char *name, Py_ssize_t size) {
    unsigned at = hash_of(name, size) % TABLE_SIZE;
    while (table[at] != NULL) {
        PyObject *other = table[at];
        if (PyBytes_GET_SIZE(other) == size && memcmp(PyBytes_AS_STRING(other), name, (size_t)size) == 0) {
            break;
        }
        at = (at + 1) % TABLE_SIZE;
    }
    return &table[at];
}

static PyObject *common(const char *name) {
    return *place_of(name, (Py_ssize_t)strlen(name));
}

int init_text(void) {
    classify();
    for (size_t i = 0; i < sizeof COMMON / sizeof *COMMON; i++) {
        PyObject **place = place_of(COMMON[i], (Py_ssize_t)strlen(COMMON[i]));
        if (*place == NULL && (*place = PyBytes_FromString(COMMON[i])) == NULL) {
            return -1;
        }
    }
    framing = (FramingNames){
        .connection = common("connection"),
        .content_length = common("content-length"),
        .host = common("host"),
        .expect = common("expect"),
        .proxy_connection = common("proxy-connection"),
        .transfer_encoding = common("transfer-encoding"),
        .upgrade = common("upgrade"),
    };
    return 0;
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

PyObject *name_of(Span name) {
    char lowered[LONGEST];
    if (name.size <= LONGEST) {
        for (Py_ssize_t i = 0; i < name.size; i++) {
            lowered[i] = lower(name.start[i]);
        }
        PyObject *known = *place_of(lowered, name.size);
        return known != NULL ? Py_NewRef(known) : PyBytes_FromStringAndSize(lowered, name.size);
    }
    PyObject *created = PyBytes_FromStringAndSize(name.start, name.size);
    if (created != NULL) {
        char *text = PyBytes_AS_STRING(created);
        for (Py_ssize_t i = 0; i < name.size; i++) {
            text[i] = lower(text[i]);
        }
    }
    return created;
}

bool equals_ignoring_case(Span text, const char *lower_text) {
    if (text.size != (Py_ssize_t)strlen(lower_text)) {
        return false;
    }
    for (Py_ssize_t i = 0; i < text.size; i++) {
        if (lower(text.start[i]) != lower_text[i]) {
            return false;
        }
    }
    return true;
}
