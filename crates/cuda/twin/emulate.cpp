// The fibers of emulate.h, and every kernel by name.
#include "emulate.h"

#include <algorithm>
#include <cstdlib>

namespace twin {

thread_local Block running;

std::vector<Entry> &entries() {
    static std::vector<Entry> all;
    return all;
}

// Back to the loop over fibers.
// Only a fiber's first start needs a context: afterwards jumps do, which ask no system.
static void leave() {
    if (!_setjmp(running.now->jump)) _longjmp(running.home_jump, 1);
}

void fail(const char *file, int line, const char *what) {
    Block &b = running;
    const char *name = strrchr(file, '/');
    snprintf(b.failure, sizeof b.failure, "%s:%d: %s (block %u %u %u, thread %u)", name ? name + 1 : file, line, what,
             b.index.x, b.index.y, b.index.z, b.now->thread.x);
    _longjmp(b.home_jump, 2);
}

void wait(State state) {
    running.now->state = state;
    leave();
}

uint64_t exchange(uint64_t offered, unsigned from) {
    Fiber *me = running.now;
    const unsigned turn = me->exchanges++ % 2;
    me->offered[turn] = offered;
    wait(State::AtShuffle);
    // All of the warp have offered theirs.
    size_t other = size_t(me->warp) * 32 + from;
    if (other >= running.fibers.size()) fail(__FILE__, __LINE__, "a shuffle from a lane that is not there");
    return running.fibers[other].offered[turn];
}

static void start() {
    (*running.kernel)();
    running.now->state = State::Done;
    _longjmp(running.home_jump, 1);
}

// Runs a fiber until it waits or ends.
// False if it failed.
__attribute__((noinline)) static bool resume(Fiber &fiber) {
    running.now = &fiber;
    int came = _setjmp(running.home_jump);
    if (came == 2) return false;
    if (came == 1) return true;
    if (fiber.started) _longjmp(fiber.jump, 1);
    fiber.started = true;
    setcontext(&fiber.context);
    return false;
}

static bool say(const char *what) {
    Block &b = running;
    if (!b.failure[0])
        snprintf(b.failure, sizeof b.failure, "%s (block %u %u %u)", what, b.index.x, b.index.y, b.index.z);
    return false;
}

// Runs all fibers of a block to their ends.
static bool run_block(bool descending) {
    auto &fibers = running.fibers;
    size_t count = fibers.size(), done = 0;
    while (done < count) {
        for (size_t i = 0; i < count; i++) {
            Fiber &fiber = fibers[descending ? count - 1 - i : i];
            if (fiber.state == State::Running && !resume(fiber)) return say("failed");
        }
        // Now everybody waits or is done: warps whose lanes all shuffle go on, else the block if
        // all are at the barrier.
        bool moved = false;
        for (size_t first = 0; first < count; first += 32) {
            auto begin = fibers.begin() + long(first), end = fibers.begin() + long(std::min(count, first + 32));
            if (!std::any_of(begin, end, [](auto &f) { return f.state == State::AtShuffle; })) continue;
            if (!std::all_of(begin, end, [](auto &f) { return f.state == State::AtShuffle; }))
                return say("a shuffle that not all lanes of a warp reach");
            for (auto f = begin; f != end; ++f) f->state = State::Running;
            moved = true;
        }
        done = size_t(std::count_if(fibers.begin(), fibers.end(), [](auto &f) { return f.state == State::Done; }));
        if (moved || done == count) continue;
        if (done) return say("a barrier that not all threads reach");
        for (auto &fiber : fibers) fiber.state = State::Running;
    }
    return true;
}

static const size_t STACK = 64 << 10;
static const unsigned char POISON = 0xff, FENCE = 0xa5;
static const size_t FENCE_BYTES = 64, ALIGNED = 128;

unsigned char *shared_memory() {
    return (unsigned char *)((uintptr_t(running.shared.data()) + ALIGNED - 1) / ALIGNED * ALIGNED);
}

// Apart, for a context that is taken is a place that may be come back to.
__attribute__((noinline)) static void prepare(Fiber &fiber) {
    fiber.state = State::Running;
    fiber.started = false;
    fiber.exchanges = 0;
    fiber.stack.resize(STACK);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, start, 0);
}

static const char *run(const Entry &entry, const void *params, const unsigned *dims, unsigned shared, bool descending) {
    Block &b = running;
    b.failure[0] = 0;
    b.grid = {dims[0], dims[1], dims[2]};
    b.block = {dims[3], dims[4], dims[5]};
    size_t threads = size_t(b.block.x) * b.block.y * b.block.z;
    if (threads > entry.threads) return "more threads than the kernel is made for";
    size_t blocks = size_t(b.grid.x) * b.grid.y * b.grid.z;
    std::function<void()> kernel = [&] { entry.call(params); };
    b.kernel = &kernel;
    b.shared.resize(shared + FENCE_BYTES + ALIGNED);
    b.fibers.resize(threads);
    for (size_t i = 0; i < blocks; i++) {
        size_t at = descending ? blocks - 1 - i : i;
        b.index = {unsigned(at % b.grid.x), unsigned(at / b.grid.x % b.grid.y), unsigned(at / b.grid.x / b.grid.y)};
        std::fill(b.shared.begin(), b.shared.end(), POISON);
        unsigned char *fence = shared_memory() + shared;
        memset(fence, FENCE, FENCE_BYTES);
        for (size_t t = 0; t < threads; t++) {
            Fiber &fiber = b.fibers[t];
            fiber.thread = {unsigned(t % b.block.x), unsigned(t / b.block.x % b.block.y),
                            unsigned(t / b.block.x / b.block.y)};
            fiber.lane = unsigned(t % 32);
            fiber.warp = unsigned(t / 32);
            prepare(fiber);
        }
        if (!run_block(descending)) return b.failure;
        for (size_t byte = 0; byte < FENCE_BYTES; byte++)
            if (fence[byte] != FENCE) {
                say("shared memory was written beyond its end");
                return b.failure;
            }
    }
    return nullptr;
}

} // namespace twin

// Runs the kernel `name`.
// `dims`: three of the grid, three of a block.
// Null if all went well, else what did not; the text holds until this thread's next call.
extern "C" const char *alara_twin_run(const char *name, const void *params, size_t bytes, const unsigned *dims,
                                      unsigned shared, int descending) {
    for (auto &entry : twin::entries()) {
        if (strcmp(entry.name, name)) continue;
        if (entry.bytes != bytes) return "parameters of another size than the kernel's";
        return twin::run(entry, params, dims, shared, descending != 0);
    }
    return "no kernel of that name";
}

// Kernel number `nth`: its name, null if there are no more; the bytes of its parameter, and the
// most threads of a block.
extern "C" const char *alara_twin_kernel(size_t nth, size_t *bytes, size_t *threads) {
    auto &all = twin::entries();
    if (nth >= all.size()) return nullptr;
    *bytes = all[nth].bytes;
    *threads = all[nth].threads;
    return all[nth].name;
}

#include "../kernels/all.cu"
