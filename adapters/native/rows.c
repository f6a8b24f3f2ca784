/* The usual operations on a row, as `SharedAllowance` in gateway/limits/shared_allowance.py defines them: the same words,
 * the same arithmetic in the same order, and the same journal, so that processes with and without this module share a
 * table. */

#include "rows.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Words of a row, of a column and of a journal, as in gateway/limits/shared.py. */
enum { KEY = 0, IN_FLIGHT = 2, IDLE_AT = 3, IDLE_UTC = 4, LONGEST = 5, USED = 6, WINDOW = 8, START = 9, END = 10 };
enum { PERIOD = 11, RATES = 12, UNITS = 5, ROW_WORDS = 28 };
enum { HELD = 0, HELD_PICOS = 5, HELD_WINDOW = 7, COLUMN_WORDS = 8 };
enum { CHANGED = 0, WORKER = 1, OLD_ROW = 2, OLD_COLUMN = OLD_ROW + ROW_WORDS, JOURNAL_WORDS = OLD_COLUMN + COLUMN_WORDS };
enum { MUTEX_WORDS = 8, OWNER = 7 };

/* Below these, sums of whole numbers are exact in 64 bits and in doubles, as in Python, which computes with larger ones. */
static const int64_t LARGE_PICOS = (int64_t)1 << 61;
static const double LARGE_AMOUNT = (double)((int64_t)1 << 51);

typedef union {
    uint64_t q;
    double d;
} Word;

static_assert(sizeof(Word) == 8, "words have 64 bits");
static_assert(sizeof(pthread_mutex_t) <= OWNER * sizeof(Word), "the owner's word is behind the mutex");

/* A rate of a limit. `bucket` is the Python object in which reports read the level. */
typedef struct {
    int unit;
    double capacity, per_second, seconds;
    PyObject *bucket;
} Rate;

typedef struct {
    PyObject_HEAD
    Py_buffer memory;
    Word *row, *column, *journal, *lock;
    uint64_t key[2], number, worker;
    Rate rates[UNITS];
    int count;
    double longest;
    uint64_t most;
    PyObject *budget;
    int64_t amount;
    uint64_t period;
} Row;

/* What an operation writes. */
typedef struct {
    double level[UNITS], at[UNITS];
    uint64_t used;
} Change;

static PyObject *level_name, *at_name, *used_name, *window_name, *start_name, *end_name;

/* ── locks ────────────────────────────────────────────────────────────────────────────────────────────── */

/* Lock a row that still has its key. False, and no lock, where Python has to look: the lock is in use, or its owner died,
 * or the row has another key. A dead owner's word stays, by which Python finds the unfinished change. */
static bool lock(Row *self) {
    if (self->lock != NULL) {
        pthread_mutex_t *mutex = (pthread_mutex_t *)self->lock;
        int status = pthread_mutex_trylock(mutex);
        if (status == EOWNERDEAD) {
            status = pthread_mutex_consistent(mutex);
        }
        if (status != 0) {
            return false;
        }
        if (self->lock[OWNER].q != 0) {
            pthread_mutex_unlock(mutex);
            return false;
        }
        __atomic_store_n(&self->lock[OWNER].q, self->worker + 1, __ATOMIC_SEQ_CST);
    }
    return true;
}

static void unlock(Row *self) {
    if (self->lock != NULL) {
        __atomic_store_n(&self->lock[OWNER].q, 0, __ATOMIC_SEQ_CST);
        pthread_mutex_unlock((pthread_mutex_t *)self->lock);
    }
}

/* Until `commit` the old row and column count if this process dies. */
static void begin(Row *self) {
    if (self->lock != NULL) {
        memcpy(self->journal + OLD_ROW, self->row, ROW_WORDS * sizeof(Word));
        memcpy(self->journal + OLD_COLUMN, self->column, COLUMN_WORDS * sizeof(Word));
        self->journal[WORKER].q = self->worker;
        __atomic_store_n(&self->journal[CHANGED].q, self->number + 1, __ATOMIC_SEQ_CST);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    }
}

static void commit(Row *self) {
    if (self->lock != NULL) {
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        __atomic_store_n(&self->journal[CHANGED].q, 0, __ATOMIC_SEQ_CST);
    }
}

/* ── arithmetic ───────────────────────────────────────────────────────────────────────────────────────── */

/* Whether the row has the same limits as this process, and sums that 64 bits hold. */
static bool is_usual(Row *self) {
    Word *row = self->row, *column = self->column;
    if (row[KEY].q != self->key[0] || row[KEY + 1].q != self->key[1]) {
        return false;
    }
    for (int i = 0; i < self->count; i++) {
        double capacity = self->rates[i].capacity;
        if (row[RATES + 3 * self->rates[i].unit + 2].d != capacity || !(capacity < LARGE_AMOUNT)) {
            return false;
        }
    }
    return self->budget == NULL
           || (row[PERIOD].q == self->period && row[USED + 1].q == 0 && row[USED].q < (uint64_t)LARGE_PICOS
               && column[HELD_PICOS + 1].q == 0 && column[HELD_PICOS].q < (uint64_t)LARGE_PICOS);
}

/* The level of a bucket at `now`, as `TokenBucket.refill`. */
static void refill(Row *self, int i, double now, Change *change) {
    Rate *rate = &self->rates[i];
    Word *words = self->row + RATES + 3 * rate->unit;
    double level = words[0].d, at = words[1].d, elapsed = now - at;
    if (elapsed > 0) {
        at = now;
        level += elapsed * rate->per_second;
        level = level < rate->capacity ? level : rate->capacity;
    }
    change->level[i] = level;
    change->at[i] = at;
}

/* As `TokenBucket.settle`. */
static void give_back(Row *self, int i, double reserved, double actual, double now, Change *change) {
    refill(self, i, now, change);
    double level = change->level[i] + (reserved - actual);
    change->level[i] = level < self->rates[i].capacity ? level : self->rates[i].capacity;
}

/* ── arguments ────────────────────────────────────────────────────────────────────────────────────────── */

/* A number of exact arithmetic. */
static bool amount_of(PyObject *number, double *amount) {
    if (PyFloat_CheckExact(number)) {
        *amount = PyFloat_AS_DOUBLE(number);
    } else if (PyLong_CheckExact(number)) {
        int overflow;
        *amount = (double)PyLong_AsLongLongAndOverflow(number, &overflow);
        if (overflow) {
            return false;
        }
    } else {
        return false;
    }
    return fabs(*amount) < LARGE_AMOUNT;
}

static bool picos_of(PyObject *number, int64_t *picos) {
    if (!PyLong_CheckExact(number)) {
        return false;
    }
    int overflow;
    *picos = PyLong_AsLongLongAndOverflow(number, &overflow);
    return !overflow && *picos >= 0 && *picos < LARGE_PICOS;
}

/* The amounts of the units of a row's rates, by their index there. */
static bool amounts_of(Row *self, PyObject *amounts, double *wanted) {
    if (!PyTuple_CheckExact(amounts) || PyTuple_GET_SIZE(amounts) != UNITS) {
        return false;
    }
    for (int i = 0; i < self->count; i++) {
        if (!amount_of(PyTuple_GET_ITEM(amounts, self->rates[i].unit), &wanted[i])) {
            return false;
        }
    }
    return true;
}

/* ── reports ──────────────────────────────────────────────────────────────────────────────────────────── */

static void publish(PyObject *object, PyObject *name, PyObject *value) {
    if (value != NULL) {
        PyObject_SetAttr(object, name, value);
        Py_DECREF(value);
    }
}

/* Set the numbers that reports read. The operation is done: a report that finds no memory has the old numbers. */
static void report(Row *self, const Change *change, Word budget[4]) {
    for (int i = 0; i < self->count; i++) {
        publish(self->rates[i].bucket, level_name, PyFloat_FromDouble(change->level[i]));
        publish(self->rates[i].bucket, at_name, PyFloat_FromDouble(change->at[i]));
    }
    if (self->budget != NULL) {
        publish(self->budget, used_name, PyLong_FromUnsignedLongLong(budget[0].q));
        publish(self->budget, window_name, PyLong_FromUnsignedLongLong(budget[1].q));
        publish(self->budget, start_name, PyFloat_FromDouble(budget[2].d));
        publish(self->budget, end_name, PyFloat_FromDouble(budget[3].d));
    }
    PyErr_Clear();
}

static void budget_of(Row *self, Word budget[4]) {
    budget[0] = self->row[USED];
    memcpy(budget + 1, self->row + WINDOW, 3 * sizeof(Word));
}

/* ── take ─────────────────────────────────────────────────────────────────────────────────────────────── */

/* Compute the row after a take. False if it is refused, or if a new window of the budget begins. */
static bool taken(Row *self, const double *estimates, int64_t cost, double now, double utc, Change *change) {
    Word *row = self->row;
    if (row[IN_FLIGHT].q >= self->most) {
        return false;
    }
    for (int i = 0; i < self->count; i++) {
        refill(self, i, now, change);
        if (!(estimates[i] <= change->level[i])) {
            return false;
        }
        change->level[i] -= estimates[i];
    }
    if (self->budget != NULL) {
        change->used = row[USED].q + (uint64_t)cost;
        if (!(utc < row[END].d) || change->used > (uint64_t)self->amount) {
            return false;
        }
    }
    return true;
}

static void write_taken(Row *self, const double *estimates, int64_t cost, const Change *change) {
    Word *row = self->row, *column = self->column;
    row[IN_FLIGHT].q += 1;
    row[IDLE_AT].d = INFINITY;
    row[LONGEST].d = self->longest;
    column[HELD].q += 1;
    for (int i = 0; i < self->count; i++) {
        int unit = self->rates[i].unit;
        row[RATES + 3 * unit].d = change->level[i];
        row[RATES + 3 * unit + 1].d = change->at[i];
        if (unit != 0) {
            column[unit].d += estimates[i];
        }
    }
    if (self->budget != NULL) {
        row[USED].q = change->used;
        row[IDLE_UTC].d = change->used ? row[END].d : 0.0;
        uint64_t held = column[HELD_WINDOW].q == row[WINDOW].q ? column[HELD_PICOS].q : 0;
        column[HELD_PICOS].q = held + (uint64_t)cost;
        column[HELD_WINDOW].q = row[WINDOW].q;
    }
}

/* The result of a take: the reserved amounts by unit, the reserved picos, and space for the window. */
static PyObject *result_of(Row *self, const double *estimates, int64_t cost) {
    PyObject *result = PyTuple_New(3), *reserved = PyDict_New(), *picos = PyLong_FromLongLong(cost);
    if (result == NULL || reserved == NULL || picos == NULL) {
        Py_XDECREF(result), Py_XDECREF(reserved), Py_XDECREF(picos);
        return NULL;
    }
    PyTuple_SET_ITEM(result, 0, reserved);
    PyTuple_SET_ITEM(result, 1, picos);
    for (int i = 0; i < self->count; i++) {
        if (self->rates[i].unit == 0) {
            continue; /* a request is not settled */
        }
        PyObject *unit = PyLong_FromLong(self->rates[i].unit), *amount = PyFloat_FromDouble(estimates[i]);
        int failed = unit == NULL || amount == NULL || PyDict_SetItem(reserved, unit, amount) < 0;
        Py_XDECREF(unit), Py_XDECREF(amount);
        if (failed) {
            Py_DECREF(result);
            return NULL;
        }
    }
    return result;
}

static PyObject *take(Row *self, PyObject *const *args, Py_ssize_t count) {
    double estimates[UNITS], now, utc;
    int64_t cost;
    if (count != 4 || !amounts_of(self, args[0], estimates) || !picos_of(args[1], &cost) || !PyFloat_CheckExact(args[2])
        || !PyFloat_CheckExact(args[3])) {
        Py_RETURN_NONE;
    }
    now = PyFloat_AS_DOUBLE(args[2]), utc = PyFloat_AS_DOUBLE(args[3]);
    for (int i = 0; i < self->count; i++) {
        double capacity = self->rates[i].capacity;
        estimates[i] = self->rates[i].unit == 0 ? 1.0 : estimates[i] > capacity ? capacity : estimates[i];
    }
    cost = self->budget == NULL ? 0 : cost < self->amount ? cost : self->amount;
    /* Everything that allocates a container precedes the lock: a collection may run any code, this function too. */
    PyObject *result = result_of(self, estimates, cost);
    if (result == NULL) {
        return NULL;
    }
    if (!lock(self)) {
        Py_DECREF(result);
        Py_RETURN_NONE;
    }
    Change change;
    PyObject *window = NULL;
    bool is_taken = is_usual(self) && taken(self, estimates, cost, now, utc, &change);
    if (is_taken) {
        window = PyLong_FromUnsignedLongLong(self->budget == NULL ? 0 : self->row[WINDOW].q);
    }
    if (window != NULL) {
        begin(self);
        write_taken(self, estimates, cost, &change);
        commit(self);
    }
    Word budget[4];
    budget_of(self, budget);
    unlock(self);
    if (window == NULL) {
        Py_DECREF(result);
        if (is_taken) {
            return NULL;
        }
        Py_RETURN_NONE;
    }
    PyTuple_SET_ITEM(result, 2, window);
    report(self, &change, budget);
    return result;
}

/* ── settle and undo ──────────────────────────────────────────────────────────────────────────────────── */

/* The reserved amounts of a hold, by unit; 0 for a unit without one. False for a dict of anything else. */
static bool reserved_of(PyObject *hold, double reserved[UNITS]) {
    memset(reserved, 0, UNITS * sizeof(double));
    if (!PyDict_CheckExact(hold)) {
        return false;
    }
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(hold, &at, &key, &value)) {
        long unit = PyLong_CheckExact(key) ? PyLong_AsLong(key) : -1;
        if (unit < 1 || unit >= UNITS || !amount_of(value, &reserved[unit])) {
            PyErr_Clear();
            return false;
        }
    }
    return true;
}

typedef struct {
    double reserved[UNITS], actual[UNITS];
    int64_t picos, cost;
    uint64_t window;
    bool undoes;
} End;

static void ended(Row *self, const End *end, double now, Change *change) {
    Word *row = self->row;
    for (int i = 0; i < self->count; i++) {
        int unit = self->rates[i].unit;
        if (unit != 0) {
            give_back(self, i, end->reserved[unit], end->actual[i], now, change);
        } else if (end->undoes) {
            give_back(self, i, 1.0, 0.0, now, change);
        } else {
            change->level[i] = row[RATES].d, change->at[i] = row[RATES + 1].d;
        }
    }
    if (self->budget != NULL) {
        change->used = row[USED].q;
        if (end->window == row[WINDOW].q) {
            int64_t used = (int64_t)change->used + end->cost - end->picos; /* each is below 2 to the power of 61 */
            change->used = used < 0 ? 0 : (uint64_t)used;
        }
    }
}

static void write_ended(Row *self, const End *end, const Change *change) {
    Word *row = self->row, *column = self->column;
    double idle = 0.0;
    for (int i = 0; i < self->count; i++) {
        Rate *rate = &self->rates[i];
        row[RATES + 3 * rate->unit].d = change->level[i];
        row[RATES + 3 * rate->unit + 1].d = change->at[i];
        double full = change->at[i] + (rate->capacity - change->level[i]) * rate->seconds;
        idle = full > idle ? full : idle;
    }
    row[IN_FLIGHT].q -= 1;
    if (row[IN_FLIGHT].q == 0) {
        row[IDLE_AT].d = idle;
    }
    column[HELD].q -= 1;
    for (int unit = 1; unit < UNITS; unit++) {
        column[unit].d -= end->reserved[unit];
    }
    if (self->budget != NULL) {
        row[USED].q = change->used;
        row[IDLE_UTC].d = change->used ? row[END].d : 0.0;
        if (column[HELD_WINDOW].q == end->window) {
            uint64_t held = column[HELD_PICOS].q, picos = (uint64_t)end->picos;
            column[HELD_PICOS].q = held > picos ? held - picos : 0;
        }
    }
}

static bool change_at_end(Row *self, const End *end, double now) {
    if (!lock(self)) {
        return false;
    }
    Change change;
    bool usual = is_usual(self) && self->row[IN_FLIGHT].q > 0 && self->column[HELD].q > 0;
    if (usual) {
        ended(self, end, now, &change);
        begin(self);
        write_ended(self, end, &change);
        commit(self);
    }
    Word budget[4];
    budget_of(self, budget);
    unlock(self);
    if (usual) {
        report(self, &change, budget);
    }
    return usual;
}

/* The arguments `reserved, picos, window` of a hold. */
static bool hold_of(PyObject *const *args, End *end) {
    int64_t window;
    if (!reserved_of(args[0], end->reserved) || !picos_of(args[1], &end->picos) || !picos_of(args[2], &window)) {
        return false;
    }
    end->window = (uint64_t)window;
    return true;
}

static PyObject *settle(Row *self, PyObject *const *args, Py_ssize_t count) {
    End end = {.undoes = false};
    bool usual = count == 6 && hold_of(args, &end) && amounts_of(self, args[3], end.actual)
                 && picos_of(args[4], &end.cost) && PyFloat_CheckExact(args[5]);
    return PyBool_FromLong(usual && change_at_end(self, &end, PyFloat_AS_DOUBLE(args[5])));
}

static PyObject *undo(Row *self, PyObject *const *args, Py_ssize_t count) {
    End end = {.undoes = true};
    bool usual = count == 4 && hold_of(args, &end) && PyFloat_CheckExact(args[3]);
    return PyBool_FromLong(usual && change_at_end(self, &end, PyFloat_AS_DOUBLE(args[3])));
}

/* ── the type ─────────────────────────────────────────────────────────────────────────────────────────── */

/* The words at an offset of the memory; NULL with an exception set if they are not there. */
static Word *words_at(Row *self, Py_ssize_t offset, Py_ssize_t words) {
    char *start = (char *)self->memory.buf + offset;
    if (offset < 0 || offset + words * (Py_ssize_t)sizeof(Word) > self->memory.len || (uintptr_t)start % sizeof(Word)) {
        PyErr_SetString(PyExc_ValueError, "the memory has no such words");
        return NULL;
    }
    return (Word *)start;
}

static int set_rates(Row *self, PyObject *rates) {
    if (!PyTuple_Check(rates) || PyTuple_GET_SIZE(rates) > UNITS) {
        PyErr_SetString(PyExc_TypeError, "rates are a tuple, one for each unit");
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rates); i++) {
        Rate *rate = &self->rates[i];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(rates, i), "iOddd", &rate->unit, &rate->bucket, &rate->capacity,
                              &rate->per_second, &rate->seconds)) {
            return -1;
        }
        if (rate->unit < 0 || rate->unit >= UNITS) {
            PyErr_SetString(PyExc_ValueError, "there is no such unit");
            return -1;
        }
        Py_INCREF(rate->bucket);
        self->count++;
    }
    return 0;
}

static PyObject *new_row(PyTypeObject *type, PyObject *args, PyObject *named) {
    static char *names[] = {"memory", "row",     "column", "journal", "lock",   "key",    "number", "worker",
                            "rates",  "longest", "most",   "budget",  "amount", "period", NULL};
    Row *self = (Row *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    PyObject *memory, *rates, *budget;
    Py_ssize_t row, column, journal, mutex;
    unsigned long long key[2], number, worker, most, period;
    long long amount;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O$nnnn(KK)KKOdKOLK", names, &memory, &row, &column, &journal, &mutex,
                                     &key[0], &key[1], &number, &worker, &rates, &self->longest, &most, &budget, &amount,
                                     &period)
        || PyObject_GetBuffer(memory, &self->memory, PyBUF_WRITABLE) < 0 || set_rates(self, rates) < 0
        || (self->row = words_at(self, row, ROW_WORDS)) == NULL
        || (self->column = words_at(self, column, COLUMN_WORDS)) == NULL
        || (mutex >= 0 && (self->lock = words_at(self, mutex, MUTEX_WORDS)) == NULL)
        || (mutex >= 0 && (self->journal = words_at(self, journal, JOURNAL_WORDS)) == NULL)) {
        Py_DECREF(self);
        return NULL;
    }
    self->key[0] = key[0], self->key[1] = key[1];
    self->number = number, self->worker = worker, self->most = most;
    self->amount = amount, self->period = period;
    if (budget != Py_None) {
        self->budget = Py_NewRef(budget);
    }
    return (PyObject *)self;
}

static void free_row(Row *self) {
    for (int i = 0; i < self->count; i++) {
        Py_DECREF(self->rates[i].bucket);
    }
    Py_XDECREF(self->budget);
    PyBuffer_Release(&self->memory);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef methods[] = {
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, NULL},
    {"settle", (PyCFunction)(void (*)(void))settle, METH_FASTCALL, NULL},
    {"undo", (PyCFunction)(void (*)(void))undo, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject row_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "adapters.native._core.Row",
    .tp_basicsize = sizeof(Row),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods,
    .tp_new = new_row,
    .tp_dealloc = (destructor)free_row,
};

int add_row_type(PyObject *module) {
    level_name = PyUnicode_InternFromString("level"), at_name = PyUnicode_InternFromString("at");
    used_name = PyUnicode_InternFromString("used"), window_name = PyUnicode_InternFromString("window");
    start_name = PyUnicode_InternFromString("start"), end_name = PyUnicode_InternFromString("end");
    if (!level_name || !at_name || !used_name || !window_name || !start_name || !end_name) {
        return -1;
    }
    return PyModule_AddType(module, &row_type);
}
