/* A fast OpenAI-shaped server that computes nothing: what stands behind every gateway in a benchmark.
 *
 *   mock_upstream [--port N] [--chunks N] [--gap-us N]
 *
 * Listens on 127.0.0.1 and 127.0.0.2, so that it can stand for two servers, and prints the port (0, the
 * default, lets the kernel choose). One thread, epoll.
 * A chat completion is the same bytes every time; with `"stream": true` it is --chunks tokens as SSE,
 * --gap-us apart, each holding the CLOCK_MONOTONIC nanosecond it was written at, T@123456@, so that
 * whoever reads it on this machine knows how long it travelled, even if a proxy re-encoded it.
 * A prediction by KServe's v1 is the same bytes every time too.
 * A client that sends a second request before its answer is complete, or stops reading, is closed.
 */
#define _GNU_SOURCE
#include "http1.h"

#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 4096, EVENTS = 256, READ_SIZE = 64 * 1024 };

#define CONTENT                                                                                                \
    "The quick brown fox jumps over the lazy dog. Inference gateways add overhead, and this fixed text "       \
    "stands in for a short model answer of roughly sixty tokens, so that proxies have a realistic amount "     \
    "of JSON to move, parse or rewrite."
#define USAGE "{\"prompt_tokens\":200,\"completion_tokens\":%d,\"total_tokens\":%d}"
#define CHUNK                                                                                                  \
    "{\"id\":\"chatcmpl-mock0001\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"               \
    "\"model\":\"mock\",\"choices\":"

static const char COMPLETION[] =
    "{\"id\":\"chatcmpl-mock0001\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"mock\","
    "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"" CONTENT "\"},"
    "\"logprobs\":null,\"finish_reason\":\"stop\"}],"
    "\"usage\":{\"prompt_tokens\":200,\"completion_tokens\":60,\"total_tokens\":260}}";
/* KServe's v1. */
static const char READY[] = "{\"name\":\"mock\",\"ready\":true}";
static const char PREDICTIONS[] =
    "{\"predictions\":[0.25,0.5,0.125,1.5,2.75,0.0625,3.5,4.25,0.75,1.25,5.5,6.125,0.375,2.5,7.25,8.0]}";
static const char MODELS[] =
    "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"created\":1700000000,"
    "\"owned_by\":\"mock\",\"root\":\"mock\",\"max_model_len\":32768}]}";
/* What an sglang worker says of itself; routers ask before they send it anything. */
static const char MODEL_INFO[] =
    "{\"model_path\":\"mock\",\"tokenizer_path\":\"mock\",\"is_generation\":true,\"served_model_name\":\"mock\"}";
static const char SERVER_INFO[] =
    "{\"model_path\":\"mock\",\"model_id\":\"mock\",\"served_model_name\":\"mock\",\"dp_size\":1,\"tp_size\":1,"
    "\"version\":\"0.5.0\",\"internal_states\":[{}]}";

struct connection {
    int fd;
    struct message request;
    bool streaming, usage;
    int left;                        /* tokens still to send */
    int64_t due;                     /* when the next one is */
    struct connection *older, *newer; /* neighbours in the queue of streams */
};

static int chunks = 64;
static int64_t gap_ns = 10 * 1000 * 1000;
static int epoll_fd;
static struct connection *connections[CONNECTIONS_MAX];

/* Every stream has the same gap, so a plain queue is ordered by due time: no heap is needed. */
static struct connection *oldest, *newest;

static void enqueue(struct connection *c)
{
    c->due = now_ns() + gap_ns;
    c->older = newest;
    c->newer = NULL;
    *(newest ? &newest->newer : &oldest) = c;
    newest = c;
}

static void dequeue(struct connection *c)
{
    *(c->older ? &c->older->newer : &oldest) = c->newer;
    *(c->newer ? &c->newer->older : &newest) = c->older;
}

static void drop(struct connection *c)
{
    if (c->streaming)
        dequeue(c);
    connections[c->fd] = NULL;
    close(c->fd);
    message_free(&c->request);
    free(c);
}

/* False when the client does not read: its socket buffer is full. */
static bool put(struct connection *c, const char *data, size_t n)
{
    return send(c->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

static bool reply(struct connection *c, const char *status, const char *body)
{
    char out[4096];
    int n = snprintf(out, sizeof out,
                     "HTTP/1.1 %s\r\nContent-Type: application/json\r\nServer: mock\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     status, strlen(body), body);
    message_reset(&c->request);
    return put(c, out, (size_t)n);
}

/* Appends one SSE event as one HTTP chunk; returns its length. */
static int event(char *out, size_t room, const char *data)
{
    return snprintf(out, room, "%zx\r\ndata: %s\n\n\r\n", strlen(data) + 8, data);
}

static bool begin_stream(struct connection *c)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
                               "Server: mock\r\nTransfer-Encoding: chunked\r\n\r\n";
    c->usage = strstr(c->request.body, "\"include_usage\"") != NULL;
    c->left = chunks;
    message_reset(&c->request);
    c->streaming = true;
    enqueue(c);
    return put(c, head, sizeof head - 1);
}

static bool end_stream(struct connection *c)
{
    char out[2048], data[512];
    int n = event(out, sizeof out, CHUNK "[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}");
    if (c->usage) {
        snprintf(data, sizeof data, CHUNK "[],\"usage\":" USAGE "}", chunks, 200 + chunks);
        n += event(out + n, sizeof out - (size_t)n, data);
    }
    n += event(out + n, sizeof out - (size_t)n, "[DONE]");
    n += snprintf(out + n, sizeof out - (size_t)n, "0\r\n\r\n");
    c->streaming = false;
    return put(c, out, (size_t)n);
}

static bool next_token(struct connection *c)
{
    char out[512], data[384];
    dequeue(c);
    snprintf(data, sizeof data,
             CHUNK "[{\"index\":0,\"delta\":{\"content\":\"T@%lld@\"},\"finish_reason\":null}]}",
             (long long)now_ns());
    bool sent = put(c, out, (size_t)event(out, sizeof out, data));
    if (--c->left == 0)
        return end_stream(c) && sent;
    enqueue(c);
    return sent;
}

/* `"stream": true` at any depth; inside a JSON string its quotes would be escaped and not match. */
static bool wants_stream(const char *body)
{
    for (const char *at = body; (at = strstr(at, "\"stream\"")); at++) {
        const char *value = at + strlen("\"stream\"");
        value += strspn(value, " \t\r\n:");
        if ((at == body || at[-1] != '\\') && !strncmp(value, "true", 4))
            return true;
    }
    return false;
}

/* `POST /v1/models/NAME:predict`. */
static bool wants_predictions(const char *head)
{
    static const char path[] = "POST /v1/models/", verb[] = ":predict HTTP";
    const char *end = strchr(head, '\r'), *at = strstr(head, verb);
    return !strncmp(head, path, sizeof path - 1) && at && end && at < end;
}

static bool answer(struct connection *c)
{
    static const struct {
        const char *line, *body;
    } routes[] = {
        {"GET /health ", "{}"},
        {"GET /v1/models ", MODELS},
        {"GET /v1/models/", READY},
        {"GET /get_model_info ", MODEL_INFO},
        {"GET /model_info ", MODEL_INFO},
        {"GET /get_server_info ", SERVER_INFO},
        {"GET /server_info ", SERVER_INFO},
    };
    const char *head = c->request.head;
    if (!strncmp(head, "POST /v1/chat/completions ", 26))
        return wants_stream(c->request.body) ? begin_stream(c) : reply(c, "200 OK", COMPLETION);
    if (wants_predictions(head))
        return reply(c, "200 OK", PREDICTIONS);
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (!strncmp(head, routes[i].line, strlen(routes[i].line)))
            return reply(c, "200 OK", routes[i].body);
    return reply(c, "404 Not Found", "{\"error\":{\"message\":\"the mock has no such path\"}}");
}

static bool receive(struct connection *c)
{
    static char data[READ_SIZE];
    ssize_t n = recv(c->fd, data, sizeof data, 0);
    if (n < 0)
        return errno == EAGAIN;
    if (n == 0 || c->streaming)
        return false;
    for (size_t taken = 0; taken < (size_t)n;) {
        taken += message_feed(&c->request, data + taken, (size_t)n - taken);
        if (c->request.stage == BROKEN)
            return false;
        if (c->request.stage == COMPLETE && !(answer(c) && (!c->streaming || taken == (size_t)n)))
            return false;
    }
    return true;
}

static void accept_all(int listener)
{
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct connection *c = fd < CONNECTIONS_MAX ? calloc(1, sizeof *c) : NULL;
        if (!c) {
            close(fd);
            continue;
        }
        c->fd = fd;
        connections[fd] = c;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event want = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &want);
    }
}

/* On loopback's address number `host`; 0 for `port` lets the kernel choose one. */
static int listen_on(uint32_t host, uint16_t *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(*port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK + host)};
    socklen_t size = sizeof address;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 1024) ||
        getsockname(fd, (struct sockaddr *)&address, &size))
        die("listen");
    *port = ntohs(address.sin_port);
    return fd;
}

static void serve(const int listeners[2])
{
    struct epoll_event events[EVENTS];
    epoll_fd = epoll_create1(0);
    for (int i = 0; i < 2; i++) {
        struct epoll_event want = {.events = EPOLLIN, .data.fd = listeners[i]};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listeners[i], &want);
    }
    for (;;) {
        int64_t wait = oldest ? oldest->due - now_ns() : 0;
        struct timespec timeout = {wait > 0 ? wait / 1000000000 : 0, wait > 0 ? wait % 1000000000 : 0};
        int n = epoll_pwait2(epoll_fd, events, EVENTS, oldest ? &timeout : NULL, NULL);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listeners[0] || fd == listeners[1])
                accept_all(fd);
            else if (connections[fd] && !receive(connections[fd]))
                drop(connections[fd]);
        }
        /* Only what is due by now: with no gap a stream would otherwise never yield to the sockets. */
        for (int64_t now = now_ns(); oldest && oldest->due <= now;) {
            struct connection *c = oldest;
            if (!next_token(c))
                drop(c);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"port", required_argument, NULL, 'p'},
                                            {"chunks", required_argument, NULL, 'c'},
                                            {"gap-us", required_argument, NULL, 'g'},
                                            {0}};
    int port = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'p')
            port = atoi(optarg);
        else if (option == 'c')
            chunks = atoi(optarg);
        else if (option == 'g')
            gap_ns = atoll(optarg) * 1000;
        else
            return 2;
    }
    if (port < 0 || port > 65535 || chunks < 1 || gap_ns < 0) {
        fprintf(stderr, "mock_upstream: --port 0..65535, --chunks at least 1, --gap-us at least 0\n");
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1UL); /* the default slack of 50 us would blur the gaps */
    uint16_t chosen = (uint16_t)port;
    int first = listen_on(0, &chosen), second = listen_on(1, &chosen);
    printf("%d\n", chosen);
    fflush(stdout);
    serve((int[]){first, second});
}
