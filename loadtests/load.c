/* Load for a benchmark, one thread, epoll; prints one JSON object.
 *
 *   load closed --port N --request FILE --seconds S --connections N [--expect FILE]
 *   load open   --port N --request FILE --seconds S --connections N --rate R [--expect FILE]
 *   load stream --port N --request FILE --seconds S --connections N --tokens N
 *
 * closed: every connection asks again as soon as it is answered. open: requests arrive as a Poisson
 * process of R a second whatever the server does; latency counts from the arrival, so that a server that
 * falls behind cannot hide it ("coordinated omission"). stream: closed, for answers of mock_upstream.c as
 * SSE; each must hold --tokens tokens and end with [DONE], and the stamp in each token gives its transit.
 *
 * FILE holds a whole HTTP request; --expect, the body that every answer must equal. After S seconds
 * nothing new is sent, and answers in flight are awaited for at most DRAIN_NS.
 */
#define _GNU_SOURCE
#include "http1.h"

#include <getopt.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 4096, EVENTS = 256, READ_SIZE = 64 * 1024, SAMPLES_MAX = 1 << 24 };
static const int64_t DRAIN_NS = 30LL * 1000000000;
static const int64_t SPREAD_NS = 100LL * 1000000; /* streams begin over this long, not all on one tick */

enum mode { CLOSED, OPEN, STREAM };

struct samples {
    int64_t *ns;
    size_t n, cap;
};

struct client {
    int fd;
    bool busy;
    int64_t started;
    struct message reply;
    size_t scanned; /* of the reply's body */
    int tokens;
};

static enum mode mode;
static uint16_t port;
static double seconds, rate;
static int connections = 1, tokens_expected;
static char *request, *expected;
static size_t request_len, expected_len;

static int epoll_fd;
static struct client clients[CONNECTIONS_MAX];
static int idle[CONNECTIONS_MAX], idle_n;
static int64_t *arrivals, deadline;
static size_t arrivals_n, arrived;
static struct samples latency, transit, first_token;
static size_t sent, in_time, failed, tokens;

static void sample(struct samples *s, int64_t ns)
{
    if (s->n == SAMPLES_MAX)
        die("more samples than SAMPLES_MAX: use fewer --seconds");
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 1024;
        s->ns = realloc(s->ns, s->cap * sizeof *s->ns);
        if (!s->ns)
            die("realloc");
    }
    s->ns[s->n++] = ns;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Microseconds; the nearest-rank percentiles, null without a sample. */
static void print_samples(const char *name, struct samples *s)
{
    static const double ranks[] = {50, 99, 100};
    if (s->n)
        qsort(s->ns, s->n, sizeof *s->ns, ascending);
    printf(", \"%s\": ", name);
    for (size_t i = 0; i < 3 && s->n; i++) {
        size_t rank = (size_t)ceil(ranks[i] / 100 * (double)s->n);
        printf("%s\"p%.0f\": %.1f", i ? ", " : "{", ranks[i], (double)s->ns[rank - 1] / 1e3);
    }
    printf(s->n ? "}" : "null");
}

static char *read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    char *data = malloc(BODY_MAX);
    if (!file || !data)
        die(path);
    *length = fread(data, 1, BODY_MAX, file);
    fclose(file);
    return data;
}

static void dial(struct client *c)
{
    int on = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address))
        die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event want = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &want);
}

static void redial(struct client *c)
{
    close(c->fd);
    dial(c);
}

static void begin(struct client *c, int64_t started)
{
    message_reset(&c->reply);
    c->scanned = 0;
    c->tokens = 0;
    c->started = started;
    c->busy = true;
    sent++;
    ssize_t n = send(c->fd, request, request_len, MSG_NOSIGNAL | MSG_DONTWAIT);
    /* A connection that the server closed meanwhile shows as end of file on the next read. */
    if (n < 0 ? errno == EAGAIN : (size_t)n < request_len)
        die("send: the server does not read");
}

static bool reply_is_right(const struct client *c)
{
    const struct message *m = &c->reply;
    if (m->stage != COMPLETE || strncmp(m->head, "HTTP/1.1 200 ", 13))
        return false;
    if (mode == STREAM)
        return c->tokens == tokens_expected && strstr(m->body + c->scanned, "[DONE]");
    return !expected || (m->body_len == expected_len && !memcmp(m->body, expected, expected_len));
}

/* The answer is over, for good or ill. */
static void finish(struct client *c)
{
    int64_t now = now_ns();
    bool right = reply_is_right(c);
    if (right) {
        sample(&latency, now - c->started);
        in_time += now <= deadline;
    } else {
        failed++;
    }
    if (!right || (header(&c->reply, "\r\nconnection: close")))
        redial(c);
    c->busy = false;
    if (mode != OPEN && now < deadline)
        begin(c, now);
    else
        idle[idle_n++] = (int)(c - clients);
}

/* Reads the stamps T@nanoseconds@ of the tokens that have come whole. */
static void scan_tokens(struct client *c)
{
    int64_t now = now_ns();
    const char *body = c->reply.body, *at, *end;
    while ((at = strstr(body + c->scanned, "T@")) && (end = strchr(at + 2, '@'))) {
        sample(&transit, now - strtoll(at + 2, NULL, 10));
        if (c->tokens++ == 0)
            sample(&first_token, now - c->started);
        tokens++;
        c->scanned = (size_t)(end + 1 - body);
    }
}

static void receive(struct client *c)
{
    static char data[READ_SIZE];
    ssize_t n = recv(c->fd, data, sizeof data, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (!c->busy || n <= 0) { /* closed, or spoke without being asked */
        if (c->busy)
            finish(c);
        else
            redial(c);
        return;
    }
    size_t taken = message_feed(&c->reply, data, (size_t)n);
    if (mode == STREAM && c->reply.body)
        scan_tokens(c);
    if (c->reply.stage == COMPLETE && taken < (size_t)n)
        c->reply.stage = BROKEN;
    if (c->reply.stage >= COMPLETE)
        finish(c);
}

/* When requests come: as a Poisson process, or once for each connection that then keeps itself busy. */
static void plan_arrivals(int64_t start)
{
    arrivals_n = mode == OPEN ? (size_t)(rate * seconds) : (size_t)connections;
    arrivals = calloc(arrivals_n, sizeof *arrivals);
    if (!arrivals)
        die("calloc");
    double at = 0;
    srand48(42); /* the same arrivals for every server */
    for (size_t i = 0; i < arrivals_n; i++) {
        arrivals[i] = start + (int64_t)at;
        if (mode == OPEN)
            at += -log(1 - drand48()) * 1e9 / rate;
        else if (mode == STREAM)
            at += (double)SPREAD_NS / connections;
    }
}

static void run(void)
{
    struct epoll_event events[EVENTS];
    int64_t start = now_ns(), stop;
    plan_arrivals(start);
    deadline = start + (int64_t)(seconds * 1e9);
    stop = deadline + DRAIN_NS;
    for (int64_t now = start; now < stop; now = now_ns()) {
        while (arrived < arrivals_n && idle_n && arrivals[arrived] <= now)
            begin(&clients[idle[--idle_n]], arrivals[arrived++]);
        if (arrived == arrivals_n && idle_n == connections)
            return;
        int64_t until = arrived < arrivals_n && idle_n ? arrivals[arrived] : stop;
        int64_t wait = until > now ? until - now : 0;
        struct timespec timeout = {wait / 1000000000, wait % 1000000000};
        int n = epoll_pwait2(epoll_fd, events, EVENTS, &timeout, NULL);
        for (int i = 0; i < n; i++)
            receive(events[i].data.ptr);
    }
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'},        {"request", required_argument, NULL, 'q'},
        {"seconds", required_argument, NULL, 's'},     {"rate", required_argument, NULL, 'r'},
        {"connections", required_argument, NULL, 'c'}, {"expect", required_argument, NULL, 'e'},
        {"tokens", required_argument, NULL, 't'},      {0}};
    static const char *const modes[] = {"closed", "open", "stream"};
    size_t i = 0;
    while (i < 3 && (argc < 2 || strcmp(argv[1], modes[i])))
        i++;
    mode = (enum mode)i;
    for (int o; (o = getopt_long(argc - 1, argv + 1, "", options, NULL)) != -1;) {
        switch (o) {
        case 'p': port = (uint16_t)atoi(optarg); break;
        case 'q': request = read_file(optarg, &request_len); break;
        case 's': seconds = atof(optarg); break;
        case 'r': rate = atof(optarg); break;
        case 'c': connections = atoi(optarg); break;
        case 'e': expected = read_file(optarg, &expected_len); break;
        case 't': tokens_expected = atoi(optarg); break;
        default: exit(2);
        }
    }
    if (i == 3 || !port || !request || seconds <= 0 || connections < 1 || connections > CONNECTIONS_MAX ||
        (mode == OPEN && rate * seconds < 1) || (mode == STREAM && tokens_expected < 1)) {
        fprintf(stderr, "usage: see the top of load.c\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    prctl(PR_SET_TIMERSLACK, 1UL); /* the default slack of 50 us would delay arrivals */
    epoll_fd = epoll_create1(0);
    for (int i = 0; i < connections; i++) {
        dial(&clients[i]);
        idle[idle_n++] = i;
    }
    run();
    printf("{\"seconds\": %g, \"sent\": %zu, \"completed\": %zu, \"in_time\": %zu, \"failed\": %zu, \"tokens\": %zu",
           seconds, sent, latency.n, in_time, failed, tokens);
    print_samples("latency_us", &latency);
    print_samples("transit_us", &transit);
    print_samples("first_token_us", &first_token);
    printf("}\n");
}
