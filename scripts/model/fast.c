// One training step of the decoder in model.py, forward and backward, for x86 CPUs with AMX (bf16 tiles).
//
// Built by fast.py with the sizes as macros. Activations are bf16, sums f32, weights f32 (rounded to bf16 and packed once a step).
// Rows are tokens: first the padded prefix that all conversations of the batch share, then B conversations of S tokens each.
// Threads take chunks of rows, or (conversation, key/value head) pairs in attention; scores are computed again in the backward
// pass instead of being kept. All row counts are multiples of 32.

#include <immintrin.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define QKV ((H + 2 * K) * E)
#define HE (H * E)
#define KE (K * E)
#define G (H / K)
#define CHUNK 128
typedef uint16_t bf;

// Basics ---------------------------------------------------------------------------------------------------------------

static inline __m512 ld(const bf *p) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16)); }
static inline void st(bf *p, __m512 x) { _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(x)); }

static void *room(size_t bytes) {
  void *p = aligned_alloc(64, (bytes + 8191) & ~(size_t)4095);
  memset(p, 0, bytes);
  return p;
}

struct config { uint8_t palette, start, reserved[14]; uint16_t width[16]; uint8_t rows[16]; } __attribute__((packed));

static void tiles(void) {
  struct config c;
  memset(&c, 0, sizeof c);
  c.palette = 1;
  for (int i = 0; i < 8; i++) c.width[i] = 64, c.rows[i] = 16;
  _tile_loadconfig(&c);
}

int fast_start(void) { return (int)syscall(SYS_arch_prctl, 0x1023, 18); }

static inline void transpose16(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; i++) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
  }
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
    r[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
    r[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
    r[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
  }
}

// Packed right operands are 16x32 tiles [column block][reduction block], 512 values each; `kb0` of `kbs` reduction blocks.

// X [rows, cols] for A[., rows] X.
static void pack_b(const bf *x, long stride, int rows, int cols, bf *out, int kb0, int kbs) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  for (int kb = 0; kb < rows / 32; kb++)
    for (int nb = 0; nb < cols / 16; nb++) {
      bf *o = out + ((long)nb * kbs + kb0 + kb) * 512;
      for (int r = 0; r < 16; r++) {
        const bf *a = x + (kb * 32 + 2 * r) * stride + nb * 16;
        __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)a)), _mm256_loadu_si256((const __m256i *)(a + stride)), 1);
        _mm512_storeu_si512(o + r * 32, _mm512_permutexvar_epi16(order, both));
      }
    }
}

// X [rows, cols] for A[., cols] X^T.
static void pack_bt(const bf *x, long stride, int rows, int cols, bf *out) {
  __m512i r[16];
  for (int nb = 0; nb < rows / 16; nb++)
    for (int kb = 0; kb < cols / 32; kb++) {
      for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(x + (nb * 16 + i) * stride + kb * 32);
      transpose16(r);
      bf *o = out + ((long)nb * (cols / 32) + kb) * 512;
      for (int i = 0; i < 16; i++) _mm512_storeu_si512(o + i * 32, r[i]);
    }
}

// X [rows, cols] as the left operand X^T: tiles [column block][row block].
static void pack_at(const bf *x, long stride, int rows, int cols, bf *out, int kb0, int kbs) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  __m512i t[16];
  for (int kb = 0; kb < rows / 32; kb++)
    for (int mb = 0; mb < cols / 16; mb++) {
      for (int r = 0; r < 16; r++) {
        const bf *a = x + (kb * 32 + 2 * r) * stride + mb * 16;
        __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)a)), _mm256_loadu_si256((const __m256i *)(a + stride)), 1);
        t[r] = _mm512_permutexvar_epi16(order, both);
      }
      transpose16(t);
      bf *o = out + ((long)mb * kbs + kb0 + kb) * 512;
      for (int i = 0; i < 16; i++) _mm512_storeu_si512(o + i * 32, t[i]);
    }
}

// A 32x32 block of sums lies in the tiles 0-3.
#define ZERO() do { _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3); } while (0)
#define LOAD(c, n) do { _tile_loadd(0, (c), (n) * 4); _tile_loadd(1, (c) + 16, (n) * 4); _tile_loadd(2, (c) + 16 * (long)(n), (n) * 4); _tile_loadd(3, (c) + 16 * (long)(n) + 16, (n) * 4); } while (0)
#define STORE(c, n) do { _tile_stored(0, (c), (n) * 4); _tile_stored(1, (c) + 16, (n) * 4); _tile_stored(2, (c) + 16 * (long)(n), (n) * 4); _tile_stored(3, (c) + 16 * (long)(n) + 16, (n) * 4); } while (0)

static inline void segment(const bf *a0, const bf *a1, long ak, long as, const bf *b0, const bf *b1, int kb) {
  for (int k = 0; k < kb; k++) {
    _tile_loadd(4, a0 + k * ak, as);
    _tile_loadd(6, b0 + k * 512, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b1 + k * 512, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a1 + k * ak, as);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// out[M, N] = A[M, R] B (+ residual), bf16.
static void gemm(const bf *a, long lda, int M, const bf *b, int R, int N, bf *out, long ldo, const bf *residual) {
  float c[32 * 32] __attribute__((aligned(64)));
  int kbs = R / 32;
  for (int n = 0; n < N; n += 32)
    for (int m = 0; m < M; m += 32) {
      ZERO();
      segment(a + m * lda, a + (m + 16) * lda, 32, lda * 2, b + (long)(n / 16) * kbs * 512, b + (long)(n / 16 + 1) * kbs * 512, kbs);
      STORE(c, 32);
      for (int i = 0; i < 32; i++)
        for (int j = 0; j < 32; j += 16) {
          __m512 x = _mm512_load_ps(c + i * 32 + j);
          if (residual) x = _mm512_add_ps(x, ld(residual + (m + i) * ldo + n + j));
          st(out + (m + i) * ldo + n + j, x);
        }
    }
}

// C[M, N] += A^T B in f32, both packed with R/32 reduction blocks.
static void gemm_sum(const bf *a, const bf *b, int R, int M, int N, float *c) {
  int kbs = R / 32;
  for (int m = 0; m < M; m += 32)
    for (int n = 0; n < N; n += 32) {
      LOAD(c + (long)m * N + n, N);
      segment(a + (long)(m / 16) * kbs * 512, a + (long)(m / 16 + 1) * kbs * 512, 512, 64, b + (long)(n / 16) * kbs * 512, b + (long)(n / 16 + 1) * kbs * 512, kbs);
      STORE(c + (long)m * N + n, N);
    }
}

// y = x / rms(x) * w
static void norm(const bf *x, const float *w, bf *y, int rows) {
  for (int i = 0; i < rows; i++, x += D, y += D) {
    __m512 s = _mm512_setzero_ps();
    for (int j = 0; j < D; j += 16) s = _mm512_fmadd_ps(ld(x + j), ld(x + j), s);
    __m512 r = _mm512_set1_ps(1 / sqrtf(_mm512_reduce_add_ps(s) / D + 1e-6f));
    for (int j = 0; j < D; j += 16) st(y + j, _mm512_mul_ps(_mm512_mul_ps(ld(x + j), r), _mm512_loadu_ps(w + j)));
  }
}

// dx += the gradient through norm, where dy is that of its result; dw is summed.
static void norm_back(const bf *x, const float *w, const bf *dy, bf *dx, float *dw, int rows, int add) {
  for (int i = 0; i < rows; i++, x += D, dy += D, dx += D) {
    __m512 s = _mm512_setzero_ps(), p = s;
    for (int j = 0; j < D; j += 16) {
      __m512 a = ld(x + j);
      s = _mm512_fmadd_ps(a, a, s);
      p = _mm512_fmadd_ps(_mm512_mul_ps(a, ld(dy + j)), _mm512_loadu_ps(w + j), p);
    }
    float r = 1 / sqrtf(_mm512_reduce_add_ps(s) / D + 1e-6f);
    __m512 rr = _mm512_set1_ps(r), k = _mm512_set1_ps(_mm512_reduce_add_ps(p) / D * r * r * r);
    for (int j = 0; j < D; j += 16) {
      __m512 a = ld(x + j), d = ld(dy + j);
      __m512 g = _mm512_fnmadd_ps(a, k, _mm512_mul_ps(_mm512_mul_ps(d, _mm512_loadu_ps(w + j)), rr));
      if (add) g = _mm512_add_ps(g, ld(dx + j));
      st(dx + j, g);
      _mm512_storeu_ps(dw + j, _mm512_fmadd_ps(_mm512_mul_ps(a, rr), d, _mm512_loadu_ps(dw + j)));
    }
  }
}

// One head (E = 64): norm, rotation, factor.
static inline void head(const bf *x, const float *w, const float *cs, float factor, bf *y) {
  __m512 v[4], s = _mm512_setzero_ps();
  for (int j = 0; j < 4; j++) v[j] = ld(x + 16 * j), s = _mm512_fmadd_ps(v[j], v[j], s);
  __m512 r = _mm512_set1_ps(factor / sqrtf(_mm512_reduce_add_ps(s) / E + 1e-6f));
  for (int j = 0; j < 4; j++) v[j] = _mm512_mul_ps(_mm512_mul_ps(v[j], r), _mm512_loadu_ps(w + 16 * j));
  for (int j = 0; j < 2; j++) {
    __m512 c = _mm512_loadu_ps(cs + 16 * j), n = _mm512_loadu_ps(cs + 32 + 16 * j);
    st(y + 16 * j, _mm512_fmsub_ps(v[j], c, _mm512_mul_ps(v[2 + j], n)));
    st(y + 32 + 16 * j, _mm512_fmadd_ps(v[2 + j], c, _mm512_mul_ps(v[j], n)));
  }
}

static inline void head_back(const bf *x, const float *w, const float *cs, float factor, const bf *dy, bf *dx, float *dw) {
  __m512 v[4], d[4], s = _mm512_setzero_ps(), p = s, f = _mm512_set1_ps(factor);
  for (int j = 0; j < 2; j++) {
    __m512 c = _mm512_loadu_ps(cs + 16 * j), n = _mm512_loadu_ps(cs + 32 + 16 * j), a = ld(dy + 16 * j), b = ld(dy + 32 + 16 * j);
    d[j] = _mm512_mul_ps(f, _mm512_fmadd_ps(a, c, _mm512_mul_ps(b, n)));
    d[2 + j] = _mm512_mul_ps(f, _mm512_fmsub_ps(b, c, _mm512_mul_ps(a, n)));
  }
  for (int j = 0; j < 4; j++) {
    v[j] = ld(x + 16 * j);
    s = _mm512_fmadd_ps(v[j], v[j], s);
    p = _mm512_fmadd_ps(_mm512_mul_ps(v[j], d[j]), _mm512_loadu_ps(w + 16 * j), p);
  }
  float r = 1 / sqrtf(_mm512_reduce_add_ps(s) / E + 1e-6f);
  __m512 rr = _mm512_set1_ps(r), k = _mm512_set1_ps(_mm512_reduce_add_ps(p) / E * r * r * r);
  for (int j = 0; j < 4; j++) {
    st(dx + 16 * j, _mm512_fnmadd_ps(v[j], k, _mm512_mul_ps(_mm512_mul_ps(d[j], _mm512_loadu_ps(w + 16 * j)), rr)));
    _mm512_storeu_ps(dw + 16 * j, _mm512_fmadd_ps(_mm512_mul_ps(v[j], rr), d[j], _mm512_loadu_ps(dw + 16 * j)));
  }
}

static inline __m512 exp16(__m512 x) {
  x = _mm512_max_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _mm512_set1_ps(-120));
  __m512 n = _mm512_roundscale_ps(x, 0), f = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(0.0013333558f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.0096181291f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.0555041087f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.2402265070f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.6931471806f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1));
  return _mm512_scalef_ps(p, n);
}

// Weights --------------------------------------------------------------------------------------------------------------

// Flat order of parameters and gradients.
#define LAYER (D + E + E + D + QKV * D + D * HE + 2 * F * D + D * F)
#define TOTAL ((long)V * D + (long)L * LAYER + D)
#define AT(i) ((long)V * D + (long)(i) * LAYER)
#define A_NORM 0
#define Q_NORM D
#define K_NORM (D + E)
#define F_NORM (D + 2 * E)
#define W_QKV (2 * D + 2 * E)
#define W_OUT (W_QKV + QKV * D)
#define W_GU (W_OUT + D * HE)
#define W_DOWN (W_GU + 2 * F * D)

static bf *rounded, *turned, *straight;  // the weights in bf16; packed for x W^T; packed for dy W

static void matrix(const float *w, long at, int rows, int cols) {
  for (long j = 0; j < (long)rows * cols; j += 16) st(rounded + at + j, _mm512_loadu_ps(w + at + j));
  pack_bt(rounded + at, cols, rows, cols, turned + at);
  pack_b(rounded + at, cols, rows, cols, straight + at, 0, rows / 32);
}

// Attention ------------------------------------------------------------------------------------------------------------

struct part { bf *kt, *v, *k, *vt; };  // packed keys and values

static struct part parts(int rows) { return (struct part){room(rows * E * 2), room(rows * E * 2), room(rows * E * 2), room(rows * E * 2)}; }

static void fill(struct part p, const bf *k, const bf *v, int rows, int back) {
  pack_bt(k, KE, rows, E, p.kt);
  if (!back) pack_b(v, QKV, rows, E, p.v, 0, rows / 32);
  if (back) pack_b(k, KE, rows, E, p.k, 0, rows / 32), pack_bt(v, QKV, rows, E, p.vt);
}

// Scores of 32 queries with n keys.
static inline void scores(const bf *q, const bf *kt, int n, float *out, int ldo) {
  for (int j = 0; j < n; j += 32) {
    ZERO();
    segment(q, q + 16 * HE, 32, HE * 2, kt + (long)(j / 16) * (E / 32) * 512, kt + (long)(j / 16 + 1) * (E / 32) * 512, E / 32);
    STORE(out + j, ldo);
  }
}

static inline __mmask16 upto(int n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1; }

// Row of scores to probabilities (bf16); with `lse` known or not. Valid: the first P of PP, then `own` of `owns`.
static float soften(const float *s, bf *out, int P, int PP, int own, int owns, float lse, int known) {
  const __m512 low = _mm512_set1_ps(-1e30f);
  if (!known) {
    __m512 m = low;
    for (int j = 0; j < P; j += 16) m = _mm512_mask_max_ps(m, upto(P - j), m, _mm512_loadu_ps(s + j));
    for (int j = 0; j < own; j += 16) m = _mm512_mask_max_ps(m, upto(own - j), m, _mm512_loadu_ps(s + PP + j));
    float top = _mm512_reduce_max_ps(m);
    __m512 t = _mm512_set1_ps(top), sum = _mm512_setzero_ps();
    for (int j = 0; j < P; j += 16) sum = _mm512_add_ps(sum, _mm512_maskz_mov_ps(upto(P - j), exp16(_mm512_sub_ps(_mm512_loadu_ps(s + j), t))));
    for (int j = 0; j < own; j += 16) sum = _mm512_add_ps(sum, _mm512_maskz_mov_ps(upto(own - j), exp16(_mm512_sub_ps(_mm512_loadu_ps(s + PP + j), t))));
    lse = top + logf(_mm512_reduce_add_ps(sum));
  }
  __m512 t = _mm512_set1_ps(lse);
  for (int j = 0; j < PP; j += 16) st(out + j, _mm512_maskz_mov_ps(upto(P - j), exp16(_mm512_sub_ps(_mm512_loadu_ps(s + j), t))));
  for (int j = 0; j < owns; j += 16) st(out + PP + j, _mm512_maskz_mov_ps(upto(own - j), exp16(_mm512_sub_ps(_mm512_loadu_ps(s + PP + j), t))));
  return lse;
}

// Queries of one key/value head in rows [0, S) after `P` (padded PP) prefix keys.
static void attend(const bf *q, const bf *k, const bf *v, struct part before, struct part own, int P, int PP, int S, float *strip, bf *probs, bf *o, float *lse) {
  int T = PP + S;
  float c[32 * 32] __attribute__((aligned(64)));
  fill(own, k, v, S, 0);
  for (int g = 0; g < G; g++)
    for (int s = 0; s < S; s += 32) {
      const bf *at = q + (long)s * HE + g * E;
      if (PP) scores(at, before.kt, PP, strip, T);
      scores(at, own.kt, s + 32, strip + PP, T);
      for (int i = 0; i < 32; i++) lse[(s + i) * H + g] = soften(strip + (long)i * T, probs + (long)i * T, P, PP, s + i + 1, s + 32, 0, 0);
      for (int e = 0; e < E; e += 32) {
        ZERO();
        if (PP) segment(probs, probs + 16 * T, 32, T * 2, before.v + (long)(e / 16) * (PP / 32) * 512, before.v + (long)(e / 16 + 1) * (PP / 32) * 512, PP / 32);
        segment(probs + PP, probs + PP + 16 * T, 32, T * 2, own.v + (long)(e / 16) * (S / 32) * 512, own.v + (long)(e / 16 + 1) * (S / 32) * 512, s / 32 + 1);
        STORE(c, 32);
        for (int i = 0; i < 32; i++) st(o + (long)(s + i) * HE + g * E + e, _mm512_load_ps(c + i * 32)), st(o + (long)(s + i) * HE + g * E + e + 16, _mm512_load_ps(c + i * 32 + 16));
      }
    }
}

struct bench { float *strip, *strip2, *own; bf *p, *ds, *left, *right, *probs; };  // working memory of one thread

// The gradients of attend; those of the prefix's keys and values are added to pk, pv [PP, E]. dk and dv are written, plus ak, av if given.
static void attend_back(const bf *q, const bf *k, const bf *v, const bf *o, const bf *d, const float *lse, struct part before, struct part own, int P, int PP, int S, struct bench w, bf *dq, bf *dk, bf *dv, float *pk, float *pv, const float *ak, const float *av) {
  int T = PP + S, GS = G * S;
  float c[32 * 32] __attribute__((aligned(64)));
  fill(own, k, v, S, 1);
  for (int g = 0; g < G; g++)
    for (int s = 0; s < S; s += 32) {
      const bf *at = q + (long)s * HE + g * E, *dat = d + (long)s * HE + g * E;
      bf *p = w.p + (long)(g * S + s) * T, *ds = w.ds + (long)(g * S + s) * T;
      if (PP) scores(at, before.kt, PP, w.strip, T), scores(dat, before.vt, PP, w.strip2, T);
      scores(at, own.kt, s + 32, w.strip + PP, T);
      scores(dat, own.vt, s + 32, w.strip2 + PP, T);
      for (int i = 0; i < 32; i++) {
        bf *pi = p + (long)i * T, *di = ds + (long)i * T;
        soften(w.strip + (long)i * T, pi, P, PP, s + i + 1, s + 32, lse[(s + i) * H + g], 1);
        __m512 sum = _mm512_setzero_ps();
        for (int e = 0; e < E; e += 16) sum = _mm512_fmadd_ps(ld(o + (long)(s + i) * HE + g * E + e), ld(dat + (long)i * HE + e), sum);
        __m512 delta = _mm512_set1_ps(_mm512_reduce_add_ps(sum));
        const float *x = w.strip2 + (long)i * T;
        for (int j = 0; j < PP + s + 32; j += 16) st(di + j, _mm512_mul_ps(ld(pi + j), _mm512_sub_ps(_mm512_loadu_ps(x + j), delta)));
        if (s + 32 < S) memset(pi + PP + s + 32, 0, (S - s - 32) * 2), memset(di + PP + s + 32, 0, (S - s - 32) * 2);
      }
      for (int e = 0; e < E; e += 32) {
        ZERO();
        if (PP) segment(ds, ds + 16 * T, 32, T * 2, before.k + (long)(e / 16) * (PP / 32) * 512, before.k + (long)(e / 16 + 1) * (PP / 32) * 512, PP / 32);
        segment(ds + PP, ds + PP + 16 * T, 32, T * 2, own.k + (long)(e / 16) * (S / 32) * 512, own.k + (long)(e / 16 + 1) * (S / 32) * 512, s / 32 + 1);
        STORE(c, 32);
        for (int i = 0; i < 32; i++) st(dq + (long)(s + i) * HE + g * E + e, _mm512_load_ps(c + i * 32)), st(dq + (long)(s + i) * HE + g * E + e + 16, _mm512_load_ps(c + i * 32 + 16));
      }
    }
  for (int which = 0; which < 2; which++) {
    const bf *source = which ? w.p : w.ds, *other = which ? d : q;
    const float *more = which ? av : ak;
    bf *out = which ? dv : dk;
    for (int g = 0; g < G; g++) pack_b(other + g * E, HE, S, E, w.right, g * (S / 32), GS / 32);
    pack_at(source, T, GS, T, w.left, 0, GS / 32);
    if (PP) gemm_sum(w.left, w.right, GS, PP, E, which ? pv : pk);
    if (more) memcpy(w.own, more, (long)S * E * 4);
    else memset(w.own, 0, (long)S * E * 4);
    gemm_sum(w.left + (long)(PP / 16) * (GS / 32) * 512, w.right, GS, S, E, w.own);
    for (int s = 0; s < S; s++)
      for (int e = 0; e < E; e += 16) st(out + (long)s * KE + e, _mm512_loadu_ps(w.own + s * E + e));
  }
}

// The step -------------------------------------------------------------------------------------------------------------

struct kept { bf *x, *h1, *qkv, *q, *k, *o, *mid, *h2, *gu, *act; float *lse; };
static struct kept kept[L + 1];
static bf *dx, *dq, *dk, *dv, *dout;
static long most;
static int threads;
static float *turn, *grads[64], *pk[64], *pv[64];
static struct bench desk[64];
static struct part before[K], mine[64];
static bf *small[64];  // per thread: chunk buffers
static int longest;

// Room for `rows` tokens a batch, conversations of `length`, prefixes of `prefix` (all padded).
void fast_room(int rows, int length, int prefix, int count) {
  most = rows;
  threads = count;
  longest = length > prefix ? length : prefix;
  long T = length + prefix, GS = (long)G * longest;
  rounded = room(TOTAL * 2), turned = room(TOTAL * 2), straight = room(TOTAL * 2);
  for (int i = 0; i <= L; i++) {
    kept[i].x = room(most * D * 2);
    if (i == L) break;
    kept[i].h1 = room(most * D * 2), kept[i].qkv = room(most * QKV * 2), kept[i].q = room(most * HE * 2), kept[i].k = room(most * KE * 2), kept[i].o = room(most * HE * 2);
    kept[i].mid = room(most * D * 2), kept[i].h2 = room(most * D * 2), kept[i].gu = room(most * 2 * F * 2), kept[i].act = room(most * F * 2), kept[i].lse = room(most * H * 4);
  }
  dx = room(most * D * 2), dq = room(most * HE * 2), dk = room(most * KE * 2), dv = room(most * KE * 2), dout = room(most * HE * 2);
  turn = room((length + prefix + 64) * E * 4);
  for (int i = 0; i < K; i++) before[i] = parts(prefix + 32);
  for (int t = 0; t < threads; t++) {
    grads[t] = room(TOTAL * 4), pk[t] = room((long)K * (prefix + 32) * E * 4), pv[t] = room((long)K * (prefix + 32) * E * 4);
    mine[t] = parts(longest);
    long biggest = T > longest ? T : longest;
    desk[t] = (struct bench){room(32 * biggest * 4), room(32 * biggest * 4), room((long)longest * E * 4), room(GS * biggest * 2), room(GS * biggest * 2), room(GS * biggest * 2), room(GS * E * 2), room(32 * biggest * 2)};
    small[t] = room((long)CHUNK * (V * 4 + 8 * F + 4 * D) * 2 + (long)CHUNK * V * 2);
  }
  float base = 1e6f;
  for (int p = 0; p < length + prefix + 64; p++)
    for (int j = 0; j < E / 2; j++) {
      double a = p * pow(base, -2.0 * j / E);
      turn[(long)p * E + j] = cos(a), turn[(long)p * E + E / 2 + j] = sin(a);
    }
}

static inline int place(long row, int P, int PP, int S) { return row < PP ? row : P + (row - PP) % S; }

static void dw(const bf *dy, int M, const bf *x, int N, int rows, float *out, bf *space) {
  bf *left = space, *right = space + (long)rows * M;
  pack_at(dy, M, rows, M, left, 0, rows / 32);
  pack_b(x, N, rows, N, right, 0, rows / 32);
  gemm_sum(left, right, rows, M, N, out);
}

// tokens [PP + B*S]; target [PP + B*S] is -1 or the next token of a place whose prediction counts. Returns the mean loss; the
// gradients (a sum over tokens divided by their number) go to `gradient` unless it is null.
double fast_step(const float *w, float *gradient, const int *tokens, const int *target, int P, int PP, int B, int S, double *right) {
  long N = PP + (long)B * S;
  const float scale = 1 / sqrtf(E);
  double loss = 0;
  long hits = 0, count = 0;
  for (long i = 0; i < N; i++) count += target[i] >= 0;
  long chosen = (count + 31) / 32 * 32;
  long *pick = malloc((chosen + 32) * sizeof(long));
  count = 0;
  for (long i = 0; i < N; i++)
    if (target[i] >= 0) pick[count++] = i;

#pragma omp parallel num_threads(threads) reduction(+ : loss, hits)
  {
    int me = omp_get_thread_num();
    bf *space = small[me];
    float *g = grads[me];
    tiles();
    if (gradient) memset(g, 0, TOTAL * 4);
#pragma omp for schedule(dynamic)
    for (int i = -1; i < 4 * L; i++) {
      if (i < 0) { matrix(w, 0, V, D); continue; }
      long at = AT(i / 4);
      if (i % 4 == 0) matrix(w, at + W_QKV, QKV, D);
      if (i % 4 == 1) matrix(w, at + W_OUT, D, HE);
      if (i % 4 == 2) matrix(w, at + W_GU, 2 * F, D);
      if (i % 4 == 3) matrix(w, at + W_DOWN, D, F);
    }
#pragma omp for schedule(static)
    for (long i = 0; i < N; i++) memcpy(kept[0].x + i * D, rounded + (long)tokens[i] * D, D * 2);

    for (int l = 0; l < L; l++) {
      struct kept *a = kept + l;
      const float *lw = w + AT(l);
      long at = AT(l);
#pragma omp for schedule(dynamic)
      for (long r = 0; r < N; r += CHUNK) {
        int n = N - r < CHUNK ? N - r : CHUNK;
        norm(a->x + r * D, lw + A_NORM, a->h1 + r * D, n);
        gemm(a->h1 + r * D, D, n, turned + at + W_QKV, D, QKV, a->qkv + r * QKV, QKV, NULL);
        for (long i = r; i < r + n; i++) {
          const float *cs = turn + (long)place(i, P, PP, S) * E;
          for (int h = 0; h < H; h++) head(a->qkv + i * QKV + h * E, lw + Q_NORM, cs, scale, a->q + i * HE + h * E);
          for (int h = 0; h < K; h++) head(a->qkv + i * QKV + HE + h * E, lw + K_NORM, cs, 1, a->k + i * KE + h * E);
        }
      }
      if (PP) {
#pragma omp for schedule(static)
        for (int h = 0; h < K; h++) fill(before[h], a->k + h * E, a->qkv + HE + KE + h * E, PP, 0);
      }
#pragma omp for schedule(dynamic)
      for (int j = PP ? -K : 0; j < B * K; j++) {
        int h = j < 0 ? j + K : j % K;
        long r = j < 0 ? 0 : PP + (long)(j / K) * S;
        attend(a->q + r * HE + h * G * E, a->k + r * KE + h * E, a->qkv + r * QKV + HE + KE + h * E, before[h], mine[me], j < 0 ? 0 : P, j < 0 ? 0 : PP, j < 0 ? PP : S, desk[me].strip, desk[me].probs, a->o + r * HE + h * G * E, a->lse + r * H + h * G);
      }
#pragma omp for schedule(dynamic)
      for (long r = 0; r < N; r += CHUNK) {
        int n = N - r < CHUNK ? N - r : CHUNK;
        gemm(a->o + r * HE, HE, n, turned + at + W_OUT, HE, D, a->mid + r * D, D, a->x + r * D);
        norm(a->mid + r * D, lw + F_NORM, a->h2 + r * D, n);
        gemm(a->h2 + r * D, D, n, turned + at + W_GU, D, 2 * F, a->gu + r * 2 * F, 2 * F, NULL);
        for (long i = r; i < r + n; i++)
          for (int j = 0; j < F; j += 16) {
            __m512 x = ld(a->gu + i * 2 * F + j), y = ld(a->gu + i * 2 * F + F + j);
            st(a->act + i * F + j, _mm512_mul_ps(y, _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1), exp16(_mm512_sub_ps(_mm512_setzero_ps(), x))))));
          }
        gemm(a->act + r * F, F, n, turned + at + W_DOWN, F, D, kept[l + 1].x + r * D, D, a->mid + r * D);
      }
    }

    // Loss and its gradient at the chosen rows.
    const float *fw = w + AT(L);
    if (gradient) {
#pragma omp for schedule(static)
      for (long i = 0; i < N; i++) memset(dx + i * D, 0, D * 2);
    }
#pragma omp for schedule(dynamic)
    for (long r = 0; r < chosen; r += CHUNK) {
      int n = chosen - r < CHUNK ? chosen - r : CHUNK;
      bf *x = space, *h = x + CHUNK * D, *dh = h + CHUNK * D, *logits = dh + CHUNK * D, *rest = logits + (long)CHUNK * V;
      for (int i = 0; i < n; i++)
        if (r + i < count) memcpy(x + i * D, kept[L].x + pick[r + i] * D, D * 2);
        else memset(x + i * D, 0, D * 2);
      norm(x, fw, h, n);
      gemm(h, D, n, turned, D, V, logits, V, NULL);
      for (int i = 0; i < n; i++) {
        bf *z = logits + (long)i * V;
        if (r + i >= count) { memset(z, 0, V * 2); continue; }
        __m512 m = _mm512_set1_ps(-1e30f), sum = _mm512_setzero_ps();
        for (int j = 0; j < V; j += 16) m = _mm512_max_ps(m, ld(z + j));
        float top = _mm512_reduce_max_ps(m);
        m = _mm512_set1_ps(top);
        for (int j = 0; j < V; j += 16) sum = _mm512_add_ps(sum, exp16(_mm512_sub_ps(ld(z + j), m)));
        float all = _mm512_reduce_add_ps(sum);
        int goal = target[pick[r + i]];
        union { uint32_t u; float f; } y = {(uint32_t)z[goal] << 16};
        loss += logf(all) + top - y.f;
        hits += y.f >= top;
        if (!gradient) continue;
        __m512 part = _mm512_set1_ps(1 / all / count);
        for (int j = 0; j < V; j += 16) st(z + j, _mm512_mul_ps(part, exp16(_mm512_sub_ps(ld(z + j), m))));
        float p = expf(y.f - top) / all / count - 1.0f / count;
        union { float f; uint32_t u; } q = {p};
        z[goal] = (q.u + 0x7fff + ((q.u >> 16) & 1)) >> 16;
      }
      if (!gradient) continue;
      gemm(logits, V, n, straight, V, D, dh, D, NULL);
      dw(logits, V, h, D, n, g, rest);
      norm_back(x, fw, dh, x, g + AT(L), n, 0);
      for (int i = 0; i < n && r + i < count; i++) memcpy(dx + pick[r + i] * D, x + i * D, D * 2);
    }

    for (int l = L - 1; gradient && l >= 0; l--) {
      struct kept *a = kept + l;
      const float *lw = w + AT(l);
      float *lg = g + AT(l);
      long at = AT(l);
#pragma omp for schedule(dynamic)
      for (long r = 0; r < N; r += CHUNK) {
        int n = N - r < CHUNK ? N - r : CHUNK;
        bf *dgu = space, *dh = dgu + CHUNK * 2 * F, *rest = dh + CHUNK * D, *dact = rest;
        gemm(dx + r * D, D, n, straight + at + W_DOWN, D, F, dact, F, NULL);
        for (int i = 0; i < n; i++)
          for (int j = 0; j < F; j += 16) {
            __m512 x = ld(a->gu + (r + i) * 2 * F + j), y = ld(a->gu + (r + i) * 2 * F + F + j), d = ld(dact + (long)i * F + j), one = _mm512_set1_ps(1);
            __m512 s = _mm512_div_ps(one, _mm512_add_ps(one, exp16(_mm512_sub_ps(_mm512_setzero_ps(), x))));
            st(dgu + (long)i * 2 * F + F + j, _mm512_mul_ps(d, _mm512_mul_ps(x, s)));
            st(dgu + (long)i * 2 * F + j, _mm512_mul_ps(_mm512_mul_ps(d, y), _mm512_mul_ps(s, _mm512_fmadd_ps(x, _mm512_sub_ps(one, s), one))));
          }
        dw(dx + r * D, D, a->act + r * F, F, n, lg + W_DOWN, rest);
        dw(dgu, 2 * F, a->h2 + r * D, D, n, lg + W_GU, rest);
        gemm(dgu, 2 * F, n, straight + at + W_GU, 2 * F, D, dh, D, NULL);
        norm_back(a->mid + r * D, lw + F_NORM, dh, dx + r * D, lg + F_NORM, n, 1);
        gemm(dx + r * D, D, n, straight + at + W_OUT, D, HE, dout + r * HE, HE, NULL);
        dw(dx + r * D, D, a->o + r * HE, HE, n, lg + W_OUT, rest);
      }
      if (PP) {
#pragma omp for schedule(static)
        for (int h = 0; h < K; h++) fill(before[h], a->k + h * E, a->qkv + HE + KE + h * E, PP, 1);
        memset(pk[me], 0, (long)K * PP * E * 4), memset(pv[me], 0, (long)K * PP * E * 4);
      }
#pragma omp barrier
#pragma omp for schedule(dynamic)
      for (int j = 0; j < B * K; j++) {
        int h = j % K;
        long r = PP + (long)(j / K) * S;
        attend_back(a->q + r * HE + h * G * E, a->k + r * KE + h * E, a->qkv + r * QKV + HE + KE + h * E, a->o + r * HE + h * G * E, dout + r * HE + h * G * E, a->lse + r * H + h * G, before[h], mine[me], P, PP, S, desk[me], dq + r * HE + h * G * E, dk + r * KE + h * E, dv + r * KE + h * E, pk[me] + (long)h * PP * E, pv[me] + (long)h * PP * E, NULL, NULL);
      }
      if (PP) {
#pragma omp for schedule(static)
        for (int h = 0; h < K; h++) {
          for (int t = 0; t < threads; t++)
            if (t != me)
              for (long i = (long)h * PP * E; i < (long)(h + 1) * PP * E; i++) pk[me][i] += pk[t][i], pv[me][i] += pv[t][i];
          attend_back(a->q + h * G * E, a->k + h * E, a->qkv + HE + KE + h * E, a->o + h * G * E, dout + h * G * E, a->lse + h * G, before[h], mine[me], 0, 0, PP, desk[me], dq + h * G * E, dk + h * E, dv + h * E, NULL, NULL, pk[me] + (long)h * PP * E, pv[me] + (long)h * PP * E);
        }
      }
#pragma omp for schedule(dynamic)
      for (long r = 0; r < N; r += CHUNK) {
        int n = N - r < CHUNK ? N - r : CHUNK;
        bf *dqkv = space, *dh = dqkv + CHUNK * QKV, *rest = dh + CHUNK * D;
        for (int i = 0; i < n; i++) {
          const float *cs = turn + (long)place(r + i, P, PP, S) * E;
          const bf *raw = a->qkv + (r + i) * QKV;
          for (int h = 0; h < H; h++) head_back(raw + h * E, lw + Q_NORM, cs, scale, dq + (r + i) * HE + h * E, dqkv + i * QKV + h * E, lg + Q_NORM);
          for (int h = 0; h < K; h++) head_back(raw + HE + h * E, lw + K_NORM, cs, 1, dk + (r + i) * KE + h * E, dqkv + i * QKV + HE + h * E, lg + K_NORM);
          memcpy(dqkv + i * QKV + HE + KE, dv + (r + i) * KE, KE * 2);
        }
        gemm(dqkv, QKV, n, straight + at + W_QKV, QKV, D, dh, D, NULL);
        dw(dqkv, QKV, a->h1 + r * D, D, n, lg + W_QKV, rest);
        norm_back(a->x + r * D, lw + A_NORM, dh, dx + r * D, lg + A_NORM, n, 1);
      }
    }
    if (gradient) {
#pragma omp for schedule(static)
      for (long i = 0; i < N; i++) {
        float *to = g + (long)tokens[i] * D;
        for (int j = 0; j < D; j += 16) _mm512_storeu_ps(to + j, _mm512_add_ps(_mm512_loadu_ps(to + j), ld(dx + i * D + j)));
      }
#pragma omp for schedule(static)
      for (long i = 0; i < TOTAL; i++) {
        float s = 0;
        for (int t = 0; t < threads; t++) s += grads[t][i];
        gradient[i] = s;
      }
    }
    _tile_release();
  }
  free(pick);
  *right = count ? (double)hits / count : 0;
  return count ? loss / count : 0;
}
