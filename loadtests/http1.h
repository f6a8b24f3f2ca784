/* HTTP/1.1 message framing for the two programs of this folder: a bounded, incremental decoder.
 *
 * Feed it bytes as they come; it keeps the head and the body apart and undoes chunked coding, so that
 * its user sees the same body however a proxy cut it. Loopback and known peers only: it checks framing,
 * not smuggling.
 */
#ifndef HEADRACE_HTTP1_H
#define HEADRACE_HTTP1_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

enum { HEAD_MAX = 16 * 1024, BODY_MAX = 16 * 1024 * 1024 };

enum stage { IN_HEAD, IN_BODY, IN_CHUNK_SIZE, IN_CHUNK, IN_CHUNK_END, IN_TRAILER, COMPLETE, BROKEN };

struct message {
    enum stage stage;
    size_t head_len, body_len, body_cap;
    size_t left;     /* bytes still due of the body or of the chunk */
    size_t line_len; /* bytes seen of a chunk-size, chunk-end or trailer line */
    char *body;
    char head[HEAD_MAX + 1];
};

static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "refused");
    exit(1);
}

/* Starts the next message; the body's buffer is kept. */
static inline void message_reset(struct message *m)
{
    m->stage = IN_HEAD;
    m->head_len = m->body_len = m->left = m->line_len = 0;
}

static inline void message_free(struct message *m)
{
    free(m->body);
    m->body = NULL;
    m->body_cap = 0;
}

/* The value of a header (name in the form "\r\nname:"), or NULL. */
static inline const char *header(const struct message *m, const char *name)
{
    const char *at = strcasestr(m->head, name);
    if (!at)
        return NULL;
    at += strlen(name);
    return at + strspn(at, " \t");
}

static inline bool keep(struct message *m, const char *data, size_t n)
{
    if (m->body_len + n > BODY_MAX)
        return false;
    if (m->body_len + n + 1 > m->body_cap) {
        size_t cap = m->body_cap ? m->body_cap : 4096;
        while (cap < m->body_len + n + 1)
            cap *= 2;
        char *grown = realloc(m->body, cap);
        if (!grown)
            die("realloc");
        m->body = grown;
        m->body_cap = cap;
    }
    memcpy(m->body + m->body_len, data, n);
    m->body_len += n;
    m->body[m->body_len] = 0;
    return true;
}

/* How the body is framed, now that the head is whole. A message without either header has none. */
static inline enum stage after_head(struct message *m)
{
    const char *length = header(m, "\r\ncontent-length:");
    const char *coding = header(m, "\r\ntransfer-encoding:");
    if (!keep(m, "", 0))
        return BROKEN;
    if (coding && !strncasecmp(coding, "chunked", 7))
        return IN_CHUNK_SIZE;
    m->left = length ? strtoul(length, NULL, 10) : 0;
    return m->left ? IN_BODY : COMPLETE;
}

static inline void feed_head(struct message *m, char c)
{
    if (m->head_len == HEAD_MAX) {
        m->stage = BROKEN;
        return;
    }
    m->head[m->head_len++] = c;
    m->head[m->head_len] = 0;
    if (c == '\n' && m->head_len >= 4 && !memcmp(m->head + m->head_len - 4, "\r\n\r\n", 4))
        m->stage = after_head(m);
}

static inline void feed_chunk_size(struct message *m, char c)
{
    if (c == '\n') {
        m->line_len = 0;
        m->stage = m->left ? IN_CHUNK : IN_TRAILER;
    } else if (m->line_len++ < 8 && c != '\r') {
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0)
            m->stage = BROKEN;
        m->left = m->left * 16 + (size_t)digit;
    } else if (c != '\r') {
        m->stage = BROKEN;
    }
}

static inline void feed_trailer(struct message *m, char c)
{
    if (c == '\n') {
        if (m->line_len == 0)
            m->stage = COMPLETE;
        m->line_len = 0;
    } else if (c != '\r') {
        m->line_len++;
    }
}

/* Takes bytes until the message is COMPLETE or BROKEN; returns how many were taken. */
static inline size_t message_feed(struct message *m, const char *data, size_t n)
{
    size_t i = 0;
    while (i < n && m->stage < COMPLETE) {
        switch (m->stage) {
        case IN_HEAD:
            feed_head(m, data[i++]);
            break;
        case IN_CHUNK_SIZE:
            feed_chunk_size(m, data[i++]);
            break;
        case IN_CHUNK_END:
            if (data[i++] == '\n')
                m->stage = IN_CHUNK_SIZE;
            break;
        case IN_TRAILER:
            feed_trailer(m, data[i++]);
            break;
        default: {
            size_t take = n - i < m->left ? n - i : m->left;
            if (!keep(m, data + i, take)) {
                m->stage = BROKEN;
                break;
            }
            i += take;
            m->left -= take;
            if (!m->left)
                m->stage = m->stage == IN_BODY ? COMPLETE : IN_CHUNK_END;
        }
        }
    }
    return i;
}

#endif
