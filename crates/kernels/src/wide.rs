//! Sixteen floats at a time, in the registers of an instruction set: the type that float kernels
//! are written with.
//!
//! Sums of many terms use sixteen lanes, term i in lane i % 16, which are halved until one is left.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // Indices tell registers apart.

use half::f16;

/// The number of floats in a [`Wide`].
pub(crate) const LANES: usize = 16;

/// Sixteen floats.
/// Every operation follows IEEE for each of them, so that all instruction sets agree bit for bit.
///
/// # Safety
/// For all operations: the CPU has the instruction set, and pointers are to sixteen numbers at any
/// address.
pub(crate) trait Wide: Copy {
    /// The number of rows and columns of results that fit into registers, together with their
    /// operands.
    const BLOCK: usize;

    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    /// Loads IEEE half-precision numbers, widened exactly.
    unsafe fn load_f16(from: *const u16) -> Self;
    unsafe fn load_i8(from: *const i8) -> Self;
    /// Broadcasts one half-precision number.
    unsafe fn splat_f16(from: *const u16) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Stores the lowest byte of each.
    unsafe fn store_bytes(self, to: *mut i8);
    unsafe fn add(self, b: Self) -> Self;
    unsafe fn mul(self, b: Self) -> Self;
    /// `self * b + c`, rounded once.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// The greater of each two; `b`'s if they are equal or one is NaN.
    unsafe fn max(self, b: Self) -> Self;
    /// Transposes rows and columns.
    unsafe fn transpose(rows: [Self; LANES]) -> [Self; LANES];
    /// The greatest of the lanes, whose upper half is compared with the lower one until one is
    /// left.
    unsafe fn max_lane(self) -> f32;
    /// The sum of the lanes.
    unsafe fn sum(self) -> f32;
    /// The sum of each vector.
    #[inline(always)]
    unsafe fn sums<const N: usize>(x: [Self; N]) -> [f32; N] {
        let mut sums = [0.0; N];
        for i in 0..N {
            // SAFETY: upheld by the caller.
            sums[i] = unsafe { x[i].sum() };
        }
        sums
    }
}

/// The sum of sixteen lanes, in the order in which registers are halved.
#[inline(always)]
pub(crate) fn sum(x: [f32; LANES]) -> f32 {
    let mut x = x;
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            x[i] += x[i + half];
        }
    }
    x[0]
}

/// Defines functions of one operation each.
macro_rules! operations {
    ($(fn $name:ident($($args:tt)*) $(-> $out:ty)? = $value:expr;)+) => {$(
        #[inline(always)]
        #[allow(unused_unsafe)] // Some are safe.
        unsafe fn $name($($args)*) $(-> $out)? {
            // SAFETY: upheld by the caller.
            unsafe { $value }
        }
    )+};
}
#[cfg(target_arch = "x86_64")]
pub(crate) use operations;

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Plain([f32; LANES]);

impl Wide for Plain {
    const BLOCK: usize = 2;

    operations! {
        fn splat(x: f32) -> Self = Plain([x; LANES]);
        fn load(from: *const f32) -> Self = Plain(from.cast::<[f32; LANES]>().read_unaligned());
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        // SAFETY: upheld by the caller.
        let x = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        Plain(x.map(|x| f16::from_bits(x).to_f32_const()))
    }

    operations! {
        fn load_i8(from: *const i8) -> Self = Plain(from.cast::<[i8; LANES]>().read_unaligned().map(f32::from));
        fn splat_f16(from: *const u16) -> Self = Plain([f16::from_bits(from.read_unaligned()).to_f32_const(); LANES]);
        fn store(self, to: *mut f32) = to.cast::<[f32; LANES]>().write_unaligned(self.0);
        fn store_bytes(self, to: *mut i8) = to.cast::<[i8; LANES]>().write(self.0.map(|x| x.to_bits() as i8));
        fn add(self, b: Self) -> Self = Plain(std::array::from_fn(|i| self.0[i] + b.0[i]));
        fn max(self, b: Self) -> Self = Plain(std::array::from_fn(|i| if self.0[i] > b.0[i] { self.0[i] } else { b.0[i] }));
        fn transpose(rows: [Self; LANES]) -> [Self; LANES] = std::array::from_fn(|column| Plain(std::array::from_fn(|row| rows[row].0[column])));
    }

    #[inline(always)]
    unsafe fn max_lane(self) -> f32 {
        let mut x = self.0;
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                x[i] = if x[i + half] > x[i] { x[i + half] } else { x[i] };
            }
        }
        x[0]
    }

    operations! {
        fn mul(self, b: Self) -> Self = Plain(std::array::from_fn(|i| self.0[i] * b.0[i]));
        fn mul_add(self, b: Self, c: Self) -> Self = Plain(std::array::from_fn(|i| self.0[i].mul_add(b.0[i], c.0[i])));
        fn sum(self) -> f32 = sum(self.0);
    }
}

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512, transpose};

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![allow(clippy::undocumented_unsafe_blocks)] // They are all the caller's: see `Wide`.

    use std::arch::x86_64::*;

    use super::{LANES, Wide};

    /// Transposes rows and columns.
    #[inline(always)]
    pub(crate) unsafe fn transpose(r: [__m256; 8]) -> [__m256; 8] {
        unsafe {
            let a = [
                _mm256_unpacklo_ps(r[0], r[1]),
                _mm256_unpackhi_ps(r[0], r[1]),
                _mm256_unpacklo_ps(r[2], r[3]),
                _mm256_unpackhi_ps(r[2], r[3]),
                _mm256_unpacklo_ps(r[4], r[5]),
                _mm256_unpackhi_ps(r[4], r[5]),
                _mm256_unpacklo_ps(r[6], r[7]),
                _mm256_unpackhi_ps(r[6], r[7]),
            ];
            let b = [
                _mm256_shuffle_ps(a[0], a[2], 0x44),
                _mm256_shuffle_ps(a[0], a[2], 0xee),
                _mm256_shuffle_ps(a[1], a[3], 0x44),
                _mm256_shuffle_ps(a[1], a[3], 0xee),
                _mm256_shuffle_ps(a[4], a[6], 0x44),
                _mm256_shuffle_ps(a[4], a[6], 0xee),
                _mm256_shuffle_ps(a[5], a[7], 0x44),
                _mm256_shuffle_ps(a[5], a[7], 0xee),
            ];
            [
                _mm256_permute2f128_ps(b[0], b[4], 0x20),
                _mm256_permute2f128_ps(b[1], b[5], 0x20),
                _mm256_permute2f128_ps(b[2], b[6], 0x20),
                _mm256_permute2f128_ps(b[3], b[7], 0x20),
                _mm256_permute2f128_ps(b[0], b[4], 0x31),
                _mm256_permute2f128_ps(b[1], b[5], 0x31),
                _mm256_permute2f128_ps(b[2], b[6], 0x31),
                _mm256_permute2f128_ps(b[3], b[7], 0x31),
            ]
        }
    }

    /// The greatest of eight.
    #[inline(always)]
    unsafe fn max_lane(x: __m256) -> f32 {
        unsafe {
            let x = _mm_max_ps(_mm256_extractf128_ps::<1>(x), _mm256_castps256_ps128(x));
            let x = _mm_max_ps(_mm_movehl_ps(x, x), x);
            _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(x), x))
        }
    }

    /// AVX2, FMA and F16C: two registers.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256, __m256);

    impl Wide for Avx2 {
        const BLOCK: usize = 2;

        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            let x = unsafe { _mm256_set1_ps(x) };
            Avx2(x, x)
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { Avx2(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
        }

        #[inline(always)]
        unsafe fn load_f16(from: *const u16) -> Self {
            unsafe {
                let (low, high) = (_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(8).cast()));
                Avx2(_mm256_cvtph_ps(low), _mm256_cvtph_ps(high))
            }
        }

        #[inline(always)]
        unsafe fn load_i8(from: *const i8) -> Self {
            unsafe {
                let (low, high) = (_mm_loadl_epi64(from.cast()), _mm_loadl_epi64(from.add(8).cast()));
                let (low, high) = (_mm256_cvtepi8_epi32(low), _mm256_cvtepi8_epi32(high));
                Avx2(_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high))
            }
        }

        #[inline(always)]
        unsafe fn splat_f16(from: *const u16) -> Self {
            let x = unsafe { _mm256_cvtph_ps(_mm_set1_epi16(from.read_unaligned().cast_signed())) };
            Avx2(x, x)
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe {
                _mm256_storeu_ps(to, self.0);
                _mm256_storeu_ps(to.add(8), self.1);
            }
        }

        #[inline(always)]
        unsafe fn store_bytes(self, to: *mut i8) {
            unsafe {
                let low = _mm256_set1_epi32(0xff);
                let of = |x: __m256| _mm256_and_si256(_mm256_castps_si256(x), low);
                // Words of the halves' lower quarters, then of the upper ones.
                let words = _mm256_packus_epi32(of(self.0), of(self.1));
                let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
                let (first, second) = (_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
                _mm_storeu_si128(to.cast(), _mm_packus_epi16(first, second));
            }
        }

        operations! {
            fn add(self, b: Self) -> Self = Avx2(_mm256_add_ps(self.0, b.0), _mm256_add_ps(self.1, b.1));
            fn max(self, b: Self) -> Self = Avx2(_mm256_max_ps(self.0, b.0), _mm256_max_ps(self.1, b.1));
            fn max_lane(self) -> f32 = max_lane(_mm256_max_ps(self.1, self.0));
        }

        #[inline(always)]
        unsafe fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
            let mut out = rows;
            unsafe {
                for half in 0..2 {
                    let (mut left, mut right) = ([_mm256_setzero_ps(); 8], [_mm256_setzero_ps(); 8]);
                    for i in 0..8 {
                        (left[i], right[i]) = (rows[8 * half + i].0, rows[8 * half + i].1);
                    }
                    (left, right) = (transpose(left), transpose(right));
                    for i in 0..8 {
                        match half {
                            0 => (out[i].0, out[8 + i].0) = (left[i], right[i]),
                            _ => (out[i].1, out[8 + i].1) = (left[i], right[i]),
                        }
                    }
                }
            }
            out
        }

        operations! {
            fn mul(self, b: Self) -> Self = Avx2(_mm256_mul_ps(self.0, b.0), _mm256_mul_ps(self.1, b.1));
            fn mul_add(self, b: Self, c: Self) -> Self = Avx2(_mm256_fmadd_ps(self.0, b.0, c.0), _mm256_fmadd_ps(self.1, b.1, c.1));
        }

        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            unsafe {
                let x = _mm256_add_ps(self.0, self.1);
                let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
                let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
                _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
            }
        }

        /// Four at a time share steps.
        #[inline(always)]
        unsafe fn sums<const N: usize>(x: [Self; N]) -> [f32; N] {
            let mut sums = [0.0; N];
            if N != 4 {
                for i in 0..N {
                    sums[i] = unsafe { x[i].sum() };
                }
                return sums;
            }
            unsafe {
                let mut halves = [_mm_setzero_ps(); 4];
                for i in 0..4 {
                    let x = _mm256_add_ps(x[i].0, x[i].1);
                    halves[i] = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
                }
                let [a, b, c, d] = halves;
                let (ab, cd) = (
                    _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b)),
                    _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d)),
                );
                let total = _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
                _mm_storeu_ps(sums.as_mut_ptr(), total);
            }
            sums
        }
    }

    /// The sums of each vector's halves, combined.
    #[inline(always)]
    unsafe fn halves(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b)) }
    }

    /// AVX-512: one register.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512);

    impl Wide for Avx512 {
        const BLOCK: usize = 4;

        operations! {
            fn splat(x: f32) -> Self = Avx512(_mm512_set1_ps(x));
            fn load(from: *const f32) -> Self = Avx512(_mm512_loadu_ps(from));
            fn load_f16(from: *const u16) -> Self = Avx512(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast())));
            fn load_i8(from: *const i8) -> Self = Avx512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))));
            fn splat_f16(from: *const u16) -> Self = Avx512(_mm512_cvtph_ps(_mm256_set1_epi16(from.read_unaligned().cast_signed())));
            fn store(self, to: *mut f32) = _mm512_storeu_ps(to, self.0);
            fn store_bytes(self, to: *mut i8) = _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(_mm512_castps_si512(self.0)));
            fn add(self, b: Self) -> Self = Avx512(_mm512_add_ps(self.0, b.0));
            fn max(self, b: Self) -> Self = Avx512(_mm512_max_ps(self.0, b.0));
        }

        #[inline(always)]
        unsafe fn max_lane(self) -> f32 {
            unsafe {
                let (low, high) = (_mm512_castps512_ps256(self.0), _mm512_extractf32x8_ps::<1>(self.0));
                max_lane(_mm256_max_ps(high, low))
            }
        }

        #[inline(always)]
        unsafe fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
            let mut a = rows;
            let mut b = rows;
            unsafe {
                // Within quarters of registers: first pairs of rows, then pairs of pairs.
                for i in (0..16).step_by(2) {
                    a[i].0 = _mm512_unpacklo_ps(rows[i].0, rows[i + 1].0);
                    a[i + 1].0 = _mm512_unpackhi_ps(rows[i].0, rows[i + 1].0);
                }
                for i in (0..16).step_by(4) {
                    b[i].0 = _mm512_shuffle_ps::<0x44>(a[i].0, a[i + 2].0);
                    b[i + 1].0 = _mm512_shuffle_ps::<0xee>(a[i].0, a[i + 2].0);
                    b[i + 2].0 = _mm512_shuffle_ps::<0x44>(a[i + 1].0, a[i + 3].0);
                    b[i + 3].0 = _mm512_shuffle_ps::<0xee>(a[i + 1].0, a[i + 3].0);
                }
                // Then whole quarters.
                // Those of rows 4 i.. in column 4 j + c are quarter j of b[4 i + c].
                for c in 0..4 {
                    let low = _mm512_shuffle_f32x4::<0x44>(b[c].0, b[4 + c].0);
                    let high = _mm512_shuffle_f32x4::<0xee>(b[c].0, b[4 + c].0);
                    let later_low = _mm512_shuffle_f32x4::<0x44>(b[8 + c].0, b[12 + c].0);
                    let later_high = _mm512_shuffle_f32x4::<0xee>(b[8 + c].0, b[12 + c].0);
                    a[c].0 = _mm512_shuffle_f32x4::<0x88>(low, later_low);
                    a[4 + c].0 = _mm512_shuffle_f32x4::<0xdd>(low, later_low);
                    a[8 + c].0 = _mm512_shuffle_f32x4::<0x88>(high, later_high);
                    a[12 + c].0 = _mm512_shuffle_f32x4::<0xdd>(high, later_high);
                }
            }
            a
        }

        operations! {
            fn mul(self, b: Self) -> Self = Avx512(_mm512_mul_ps(self.0, b.0));
            fn mul_add(self, b: Self, c: Self) -> Self = Avx512(_mm512_fmadd_ps(self.0, b.0, c.0));
        }

        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            unsafe {
                let (low, high) = (_mm512_castps512_ps256(self.0), _mm512_extractf32x8_ps::<1>(self.0));
                let x = _mm256_add_ps(low, high);
                let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
                let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
                _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
            }
        }

        /// Four at a time share steps.
        #[inline(always)]
        unsafe fn sums<const N: usize>(x: [Self; N]) -> [f32; N] {
            let mut sums = [0.0; N];
            if N != 4 {
                for i in 0..N {
                    sums[i] = unsafe { x[i].sum() };
                }
                return sums;
            }
            unsafe {
                // Quarters [0+2, 1+3] of two, then the sums of both of four.
                let (a, b) = (halves(x[0].0, x[1].0), halves(x[2].0, x[3].0));
                let (even, odd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
                let x = _mm512_add_ps(even, odd);
                let x = _mm512_add_ps(x, _mm512_shuffle_ps::<0x0e>(x, x));
                let x = _mm512_add_ps(x, _mm512_movehdup_ps(x));
                let first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
                let x = _mm512_permutexvar_ps(first, x);
                _mm_storeu_ps(sums.as_mut_ptr(), _mm512_castps512_ps128(x));
            }
            sums
        }
    }
}

/// Defines a function with an [`Isa`](crate::Isa) and the given arguments.
/// Its body, generic over the type of sixteen floats named in `<>`, is compiled for every
/// instruction set.
/// Functions called by the body must be `#[inline(always)]` and take that type.
macro_rules! for_each_wide {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident<$wide:ident>($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? $body:block)+) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::Isa, $($arg: $type),*) $(-> $out)? {
            /// # Safety
            /// The CPU has the instruction set.
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn generic<$wide: $crate::wide::Wide>($($arg: $type),*) $(-> $out)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $type),*) $(-> $out)? {
                // SAFETY: this function enables the features.
                unsafe { generic::<$crate::wide::Avx2>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $type),*) $(-> $out)? {
                // SAFETY: this function enables the features.
                unsafe { generic::<$crate::wide::Avx512>($($arg),*) }
            }
            match isa.level() {
                // SAFETY: plain Rust.
                $crate::isa::Level::Scalar => unsafe { generic::<$crate::wide::Plain>($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the value proves that this CPU has the instruction set.
                $crate::isa::Level::Avx2 | $crate::isa::Level::AvxVnni => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::isa::Level::Avx512 | $crate::isa::Level::Amx => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: NEON is part of the target.
                $crate::isa::Level::Neon | $crate::isa::Level::DotProd => unsafe {
                    generic::<$crate::wide::Neon>($($arg),*)
                },
            }
        }
    )+};
}
pub(crate) use for_each_wide;
