// CUDA source as C++: the threads of a block are fibers, which run until they meet a barrier, a shuffle or an instruction of a warp.
//
// In which order threads and blocks take turns is the caller's to say, and must not matter: nothing else orders what they read and
// write of each other between two barriers. Whatever would hang a GPU, or is undefined on one, ends the process with words.
#include <immintrin.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

using uint = unsigned;
using uchar = unsigned char;
using ushort = unsigned short;
struct uint3 { unsigned x, y, z; };

// ------------------------------------------------------------------------------------------------------------------ 16-bit types
inline float of_bfloat16(uint16_t bits) { uint32_t wide = uint32_t(bits) << 16; float x; std::memcpy(&x, &wide, 4); return x; }
inline uint16_t to_bfloat16(float x) {
  uint32_t bits; std::memcpy(&bits, &x, 4);
  return x != x ? 0x7fff : uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline float of_half(uint16_t bits) { return _cvtsh_ss(bits); }
inline uint16_t to_half(float x) { return _cvtss_sh(x, 0); }

template <float (*OF)(uint16_t), uint16_t (*TO)(float)>
struct Short {
  uint16_t bits;
  Short() = default;
  Short(float x) : bits(TO(x)) {}
  explicit Short(double x) : bits(TO(float(x))) {}
  explicit Short(int x) : bits(TO(float(x))) {}
  explicit Short(int64_t x) : bits(TO(float(x))) {}
  operator float() const { return OF(bits); }
  // each operation rounds, as on a GPU
  friend Short operator+(Short a, Short b) { return Short(float(a) + float(b)); }
  friend Short operator-(Short a, Short b) { return Short(float(a) - float(b)); }
  friend Short operator*(Short a, Short b) { return Short(float(a) * float(b)); }
  friend Short operator/(Short a, Short b) { return Short(float(a) / float(b)); }
};
using half = Short<of_half, to_half>;
using __half = half;
using nv_bfloat16 = Short<of_bfloat16, to_bfloat16>;
using __nv_bfloat16 = nv_bfloat16;
inline half __float2half_rn(float x) { return half(x); }
inline nv_bfloat16 __float2bfloat16_rn(float x) { return nv_bfloat16(x); }

// ----------------------------------------------------------------------------------------------------------------------- vectors
#define VECTORS(NAME, T, TWO, FOUR)                                                                       \
  struct alignas(TWO) NAME##2 { T x, y; };                                                                \
  struct alignas(FOUR) NAME##4 { T x, y, z, w; };                                                         \
  inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                              \
  inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(float, float, 8, 16)
VECTORS(double, double, 16, 16)
VECTORS(int, int, 8, 16)
VECTORS(uint, unsigned, 8, 16)
VECTORS(longlong, int64_t, 16, 16)
VECTORS(half, half, 4, 8)
VECTORS(nv_bfloat16, nv_bfloat16, 4, 8)
VECTORS(uchar, unsigned char, 2, 4)
VECTORS(char, signed char, 2, 4)
VECTORS(short, short, 4, 8)
VECTORS(ushort, unsigned short, 4, 8)

#define CUDART_INF_F INFINITY
#define CUDART_INF double(INFINITY)
#define CUDART_NAN_F NAN
#define CUDART_NAN double(NAN)
template <class A, class B> auto max(A a, B b) { return a > b ? a : b; }
template <class A, class B> auto min(A a, B b) { return a < b ? a : b; }
inline int __float_as_int(float x) { int y; std::memcpy(&y, &x, 4); return y; }
inline float __int_as_float(int x) { float y; std::memcpy(&y, &x, 4); return y; }
inline long long __double_as_longlong(double x) { long long y; std::memcpy(&y, &x, 8); return y; }
inline double __longlong_as_double(long long x) { double y; std::memcpy(&y, &x, 8); return y; }
inline ushort __half_as_ushort(half x) { return x.bits; }
inline half __ushort_as_half(ushort x) { half y; y.bits = x; return y; }
inline ushort __bfloat16_as_ushort(nv_bfloat16 x) { return x.bits; }
inline nv_bfloat16 __ushort_as_bfloat16(ushort x) { nv_bfloat16 y; y.bits = x; return y; }
inline unsigned __float_as_uint(float x) { return unsigned(__float_as_int(x)); }
inline float __uint_as_float(unsigned x) { return __int_as_float(int(x)); }

// ----------------------------------------------------------------------------------------------------------------------- threads
namespace simt {

enum State { READY, AT_BARRIER, IN_WARP, DONE };
enum Kind { SHUFFLE, MMA_FLOAT16, MMA_BFLOAT16, MMA_TF32 };
struct Fragments { unsigned a[4], b[2]; float c[4]; };

struct Thread {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(1 << 17);
  uint3 index;
  int number;
  State state;
  // what it gives to the others of its warp, and gets: at which place of the source, among which lanes, from which
  int site, source;
  Kind kind;
  unsigned mask;
  uint64_t given, got;
  Fragments* fragments;
};

static std::vector<Thread> threads;
static Thread* now;
static int live;
static ucontext_t scheduler;
static uint3 blockIdx_, blockDim_, gridDim_;
static void (*running)(void**);
static void** parameters;

[[noreturn]] inline void fail(const char* words, int site) {
  std::fprintf(stderr, "simt: %s (line %d of the kernel's source, block %u %u, thread %d)\n", words, site, blockIdx_.x, blockIdx_.y,
               now ? now->number : -1);
  std::abort();
}

inline void yield() { swapcontext(&now->context, &scheduler); }

inline Thread& lane_of(const Thread& thread, int lane) { return threads[thread.number / 32 * 32 + lane]; }

// PTX ISA, matrix fragments for mma.m16n8k16 and mma.m16n8k8: group = lane / 4, t = lane % 4.
inline float element(Kind kind, unsigned word, int which) {
  uint16_t bits = uint16_t(word >> (16 * which));
  if (kind == MMA_FLOAT16) return of_half(bits);
  if (kind == MMA_BFLOAT16) return of_bfloat16(bits);
  return __uint_as_float(word);  // of which an instruction reads ten bits of the fraction: not so here, where answers are compared closely
}

inline void multiply(Kind kind, const Thread& any) {
  const int side = kind == MMA_TF32 ? 1 : 2, terms = 8 * side;
  static float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const Fragments& f = *lane_of(any, lane).fragments;
    for (int r = 0; r < 4; ++r)
      for (int e = 0; e < side; ++e) a[lane / 4 + 8 * (r % 2)][(r / 2) * 4 * side + lane % 4 * side + e] = element(kind, f.a[r], e);
    for (int r = 0; r < 2; ++r)
      for (int e = 0; e < side; ++e) b[r * 4 * side + lane % 4 * side + e][lane / 4] = element(kind, f.b[r], e);
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int r = 0; r < 4; ++r) {
      double sum = 0;
      for (int k = 0; k < terms; ++k) sum += double(a[lane / 4 + 8 * (r / 2)][k]) * b[k][lane % 4 * 2 + r % 2];
      float& c = lane_of(any, lane).fragments->c[r];
      c = float(c + sum);
    }
}

// Waits until all lanes of the mask are at the same place; then each has what it asked for.
inline void meet(int site, Kind kind, unsigned mask) {
  now->site = site, now->kind = kind, now->mask = mask, now->state = IN_WARP;
  if (!(mask >> (now->number % 32) & 1)) fail("a lane is not in the mask that it names", site);
  for (int lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    if (now->number / 32 * 32 + lane >= live) fail("a mask names a lane that the block does not have", site);
    const Thread& other = lane_of(*now, lane);
    if (other.state == DONE) fail("a mask names a lane that has left", site);
    if (other.state == IN_WARP && (other.site != site || other.mask != mask)) fail("lanes of a mask meet at different places", site);
    if (other.state != IN_WARP) return yield();
  }
  if (kind != SHUFFLE) multiply(kind, *now);
  for (int lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    Thread& other = lane_of(*now, lane);
    // of a lane that does not take part there is nothing to read
    if (kind == SHUFFLE) other.got = mask >> other.source & 1 ? lane_of(*now, other.source).given : ~uint64_t(0);
    other.state = READY;
  }
  yield();
}

template <class T> T shuffle(int site, unsigned mask, T value, int source) {
  // the lanes that are active are those of a team at least, which is a row of threads
  if (mask == 0) {
    const int wide = std::min(32u, blockDim_.x), first = now->number % 32 / wide * wide;
    mask = (wide == 32 ? ~0u : (1u << wide) - 1) << first;
  }
  now->given = 0;
  std::memcpy(&now->given, &value, sizeof(T));
  now->source = source & 31;
  meet(site, SHUFFLE, mask);
  T found;
  std::memcpy(&found, &now->got, sizeof(T));
  return found;
}

template <class T> T shuffle_from(int site, unsigned mask, T value, int64_t from, int width) {
  const int lane = now->number % 32;
  return shuffle(site, mask, value, lane / width * width + int(from % width));
}
template <class T> T shuffle_down(int site, unsigned mask, T value, int by, int width) {
  const int lane = now->number % 32;
  return shuffle(site, mask, value, lane % width + by < width ? lane + by : lane);
}
template <class T> T shuffle_up(int site, unsigned mask, T value, int by, int width) {
  const int lane = now->number % 32;
  return shuffle(site, mask, value, lane % width >= by ? lane - by : lane);
}

inline void barrier(int site) {
  now->site = site, now->state = AT_BARRIER;
  yield();
}

inline void enter() {
  running(parameters);
  now->state = DONE;
  setcontext(&scheduler);
}

extern "C" char __start_simt_shared[] __attribute__((weak)), __stop_simt_shared[] __attribute__((weak));

inline void run_block(unsigned order, std::mt19937& random) {
  std::memset(__start_simt_shared, 0xff, __stop_simt_shared - __start_simt_shared);  // NaN in every type
  for (int n = 0; n < live; ++n) {
    Thread& thread = threads[n];
    thread.number = n, thread.state = READY;
    thread.index = {n % blockDim_.x, n / blockDim_.x % blockDim_.y, n / blockDim_.x / blockDim_.y};
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.data(), thread.context.uc_stack.ss_size = thread.stack.size();
    makecontext(&thread.context, enter, 0);
  }
  std::vector<int> turns(live);
  std::iota(turns.begin(), turns.end(), 0);
  if (order == 1) std::reverse(turns.begin(), turns.end());
  for (;;) {
    if (order > 1) std::shuffle(turns.begin(), turns.end(), random);
    bool any = false;
    for (int n : turns)
      if (threads[n].state == READY) any = true, now = &threads[n], swapcontext(&scheduler, &now->context);
    if (any) continue;
    int waiting = 0, done = 0, site = -1;
    for (int n = 0; n < live; ++n) {
      now = &threads[n];
      if (now->state == IN_WARP) fail("lanes wait for others of their mask, which do not come", now->site);
      if (now->state == DONE) { ++done; continue; }
      if (site >= 0 && now->site != site) fail("threads of a block wait at different barriers", now->site);
      ++waiting, site = now->site;
    }
    if (!waiting) return;
    if (done) fail("threads have left while others wait at a barrier", site);
    for (int n = 0; n < live; ++n) threads[n].state = READY;
  }
}

// A thread goes on until it waits: nothing comes between.
template <typename T>
T atomic_add(T* address, T value) {
  T before = *address;
  *address = before + value;
  return before;
}

}  // namespace simt

#define threadIdx (simt::now->index)
#define blockIdx (simt::blockIdx_)
#define blockDim (simt::blockDim_)
#define gridDim (simt::gridDim_)
#define __syncthreads() simt::barrier(__LINE__)
#define __activemask() 0u
#define tvm_builtin_cuda_warp_sync() ((void)0)  // a shuffle waits by itself
#define tvm_builtin_cuda_atomic_add(address, value) simt::atomic_add(address, value)
#define __shfl_sync(mask, value, from, width) simt::shuffle_from(__LINE__, mask, value, from, width)
#define __shfl_down_sync(mask, value, by, width) simt::shuffle_down(__LINE__, mask, value, by, width)
#define __shfl_up_sync(mask, value, by, width) simt::shuffle_up(__LINE__, mask, value, by, width)

// order: in which blocks, and the threads of each, take their turns: 0 as they are numbered, 1 the last ones first, else at random.
extern "C" void simt_launch(void (*kernel)(void**), const unsigned* grid, const unsigned* block, void** given, unsigned order) {
  using namespace simt;
  running = kernel, parameters = given;
  gridDim_ = {grid[0], grid[1], grid[2]}, blockDim_ = {block[0], block[1], block[2]};
  live = int(block[0] * block[1] * block[2]);
  if (threads.size() < size_t(live)) threads.resize(live);
  std::mt19937 random(order);
  std::vector<uint64_t> blocks(uint64_t(grid[0]) * grid[1] * grid[2]);
  std::iota(blocks.begin(), blocks.end(), 0);
  if (order == 1) std::reverse(blocks.begin(), blocks.end());
  if (order > 1) std::shuffle(blocks.begin(), blocks.end(), random);
  for (uint64_t number : blocks) {
    blockIdx_ = {unsigned(number % grid[0]), unsigned(number / grid[0] % grid[1]), unsigned(number / grid[0] / grid[1])};
    run_block(order, random);
  }
  now = nullptr;
}
