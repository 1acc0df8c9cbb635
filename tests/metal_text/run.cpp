// Runs a kernel's grid on a CPU: one threadgroup after another, its threads as fibers that take turns in a
// shuffled order. A request comes on stdin, outputs go to stdout; a fault ends the process with a message.
#include "metal.h"
#undef thread

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <ucontext.h>
#include <vector>

namespace {
constexpr uint SIMD = 32;
constexpr size_t STACK = 64 << 10;
constexpr char FRESH = '\xA5';  // an output's bytes before a group writes

[[noreturn]] void fail(const char* what) {
  fprintf(stderr, "FAULT: %s\n", what);
  _Exit(77);
}

struct Meeting {  // a point that all threads of a group, or of a simdgroup, must reach together
  int size = 0, arrived = 0, gone = 0;
  unsigned round = 0;
};
struct Simdgroup {
  Meeting meeting;
  float values[SIMD];
};
struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  At at;
  bool done;
};

Meeting whole;
std::vector<Simdgroup> simdgroups;
std::vector<Fiber> fibers;
ucontext_t scheduler;
Fiber* current;
bool moved;  // since the last round of all fibers
std::vector<char*> buffers;

void meet(Meeting& here) {
  if (here.gone) fail("a barrier or sum after a thread of its group returned");
  const unsigned round = here.round;
  if (++here.arrived == here.size) {
    here.arrived = 0;
    ++here.round;
    moved = true;
  }
  while (here.round == round) swapcontext(&current->context, &scheduler);
}

void leave(Meeting& here) {
  if (here.arrived) fail("a thread returned while others of its group wait");
  ++here.gone;
}

void body() {
  Fiber& fiber = *current;
  kernel_of(fiber.at, buffers.data());
  leave(simdgroups[fiber.at.simdgroup_index_in_threadgroup].meeting);
  leave(whole);
  fiber.done = moved = true;
  swapcontext(&fiber.context, &scheduler);
}

void run_group(const std::vector<At>& places, std::mt19937& random) {
  whole = Meeting();
  whole.size = static_cast<int>(places.size());
  simdgroups.assign((places.size() + SIMD - 1) / SIMD, Simdgroup());
  if (fibers.size() < places.size()) fibers.resize(places.size());
  std::vector<Fiber*> order;
  for (size_t i = 0; i < places.size(); ++i) {
    Fiber& fiber = fibers[i];
    fiber.at = places[i];
    fiber.done = false;
    if (!fiber.stack) fiber.stack.reset(new char[STACK]);
    ++simdgroups[i / SIMD].meeting.size;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = STACK;
    makecontext(&fiber.context, body, 0);
    order.push_back(&fiber);
  }
  std::shuffle(order.begin(), order.end(), random);
  while (!order.empty()) {
    moved = false;
    for (Fiber* fiber : order) {
      current = fiber;
      swapcontext(&scheduler, &fiber->context);
    }
    if (!moved) fail("threads wait at different places");
    order.erase(std::remove_if(order.begin(), order.end(), [](Fiber* f) { return f->done; }), order.end());
  }
}

std::vector<At> places_of(uint group, uint size, uint grid) {
  const uint here = std::min(size, grid - group * size), groups = (grid + size - 1) / size;
  std::vector<At> places(here);
  for (uint i = 0; i < here; ++i)
    places[i] = At{{group * size + i, 0, 0}, {i, 0, 0}, {group, 0, 0}, {here, 1, 1}, {grid, 1, 1}, {groups, 1, 1},
                   i, i / SIMD, i % SIMD, (here + SIMD - 1) / SIMD, SIMD};
  return places;
}

template <class T>
T taken() {
  T x;
  if (fread(&x, sizeof x, 1, stdin) != 1) fail("the request is cut off");
  return x;
}

struct Output {
  char* data;
  size_t bytes, item;
  std::vector<char> merged;
};

// Keep what a group wrote; no two groups may write one number.
void merge(Output& output) {
  const std::vector<char> fresh(output.item, FRESH);
  for (size_t i = 0; i < output.bytes; i += output.item) {
    if (!memcmp(output.data + i, fresh.data(), output.item)) continue;
    if (memcmp(&output.merged[i], fresh.data(), output.item)) fail("two threadgroups write one number");
    memcpy(&output.merged[i], output.data + i, output.item);
  }
}
}  // namespace

extern "C" char __start_threadgroup_memory[] __attribute__((weak));
extern "C" char __stop_threadgroup_memory[] __attribute__((weak));

void meet_group() { meet(whole); }

float sum_of_simdgroup(float x) {
  Simdgroup& here = simdgroups[current->at.simdgroup_index_in_threadgroup];
  here.values[current->at.thread_index_in_simdgroup] = x;
  meet(here.meeting);
  float sums[SIMD] = {};
  std::copy(here.values, here.values + here.meeting.size, sums);
  for (uint step = SIMD / 2; step; step /= 2)
    for (uint i = 0; i < step; ++i) sums[i] += sums[i + step];
  meet(here.meeting);  // nobody may write the next value before all have read these
  return sums[0];
}

int main() {
  const uint grid = taken<uint32_t>(), size = std::min(taken<uint32_t>(), grid), count = taken<uint32_t>();
  std::vector<Output> outputs;
  for (uint i = 0; i < count; ++i) {
    const size_t bytes = taken<uint64_t>(), item = taken<uint64_t>();  // an output's item has a size, an input's none
    char* data = static_cast<char*>(malloc(bytes));  // exactly as large, so that the sanitizer sees its end
    if (item) outputs.push_back({data, bytes, item, std::vector<char>(bytes, FRESH)});
    else if (fread(data, 1, bytes, stdin) != bytes) fail("the request is cut off");
    buffers.push_back(data);
  }
  std::mt19937 random(1);
  std::vector<uint> order;
  for (uint group = 0; group * size < grid; ++group) order.push_back(group);
  std::shuffle(order.begin(), order.end(), random);
  for (uint group : order) {
    for (Output& output : outputs) memset(output.data, FRESH, output.bytes);
    if (__start_threadgroup_memory)  // NaN
      memset(__start_threadgroup_memory, 0xFF, static_cast<size_t>(__stop_threadgroup_memory - __start_threadgroup_memory));
    run_group(places_of(group, size, grid), random);
    for (Output& output : outputs) merge(output);
  }
  for (const Output& output : outputs) fwrite(output.merged.data(), 1, output.bytes, stdout);
}
