//! Sixteen floats at a time, in the registers that an instruction set has: what kernels over floats are written in.
//!
//! Sums over many terms run in sixteen lanes, term i in lane i % 16, which are halved until one is left.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // Indices tell registers apart.

use half::f16;

/// The numbers in a [`Wide`].
pub(crate) const LANES: usize = 16;

/// Sixteen floats. Every operation is IEEE's on each of them, so that all instruction sets agree bit for bit.
///
/// # Safety
/// Of all operations: the CPU has the instruction set, and pointers are to sixteen numbers at any address.
pub(crate) trait Wide: Copy {
    /// The rows and columns of results that have room in the registers, along with what they are made of.
    const BLOCK: usize;

    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    /// IEEE's half precision, which is widened exactly.
    unsafe fn load_f16(from: *const u16) -> Self;
    unsafe fn load_i8(from: *const i8) -> Self;
    /// One number in half precision, sixteen times.
    unsafe fn splat_f16(from: *const u16) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn mul(self, b: Self) -> Self;
    /// `self * b + c`, rounded once.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// The sum of the lanes.
    unsafe fn sum(self) -> f32;
    /// The sum of each.
    #[inline(always)]
    unsafe fn sums<const N: usize>(x: [Self; N]) -> [f32; N] {
        let mut sums = [0.0; N];
        for i in 0..N {
            // SAFETY: the caller's.
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

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Plain([f32; LANES]);

impl Wide for Plain {
    const BLOCK: usize = 2;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Plain([x; LANES])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's.
        Plain(unsafe { from.cast::<[f32; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        // SAFETY: the caller's.
        let x = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        Plain(x.map(|x| f16::from_bits(x).to_f32_const()))
    }

    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self {
        // SAFETY: the caller's.
        Plain(unsafe { from.cast::<[i8; LANES]>().read_unaligned() }.map(f32::from))
    }

    #[inline(always)]
    unsafe fn splat_f16(from: *const u16) -> Self {
        // SAFETY: the caller's.
        Plain([f16::from_bits(unsafe { from.read_unaligned() }).to_f32_const(); LANES])
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i] * b.0[i]))
    }

    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i].mul_add(b.0[i], c.0[i])))
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        sum(self.0)
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![allow(clippy::undocumented_unsafe_blocks)] // They are all the caller's: see `Wide`.

    use std::arch::x86_64::*;

    use super::Wide;

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
        unsafe fn mul(self, b: Self) -> Self {
            unsafe { Avx2(_mm256_mul_ps(self.0, b.0), _mm256_mul_ps(self.1, b.1)) }
        }

        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            unsafe { Avx2(_mm256_fmadd_ps(self.0, b.0, c.0), _mm256_fmadd_ps(self.1, b.1, c.1)) }
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
    }

    /// The halves of each added, side by side.
    #[inline(always)]
    unsafe fn halves(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b)) }
    }

    /// AVX-512: one register.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512);

    impl Wide for Avx512 {
        const BLOCK: usize = 4;

        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { Avx512(_mm512_set1_ps(x)) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { Avx512(_mm512_loadu_ps(from)) }
        }

        #[inline(always)]
        unsafe fn load_f16(from: *const u16) -> Self {
            unsafe { Avx512(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))) }
        }

        #[inline(always)]
        unsafe fn load_i8(from: *const i8) -> Self {
            unsafe { Avx512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())))) }
        }

        #[inline(always)]
        unsafe fn splat_f16(from: *const u16) -> Self {
            unsafe { Avx512(_mm512_cvtph_ps(_mm256_set1_epi16(from.read_unaligned().cast_signed()))) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm512_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn mul(self, b: Self) -> Self {
            unsafe { Avx512(_mm512_mul_ps(self.0, b.0)) }
        }

        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            unsafe { Avx512(_mm512_fmadd_ps(self.0, b.0, c.0)) }
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

        /// Four at a time share the steps.
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

/// Defines a function of an [`Isa`](crate::Isa) and the arguments given, whose one body, over the type of sixteen floats
/// named in `<>`, is compiled for every instruction set. What it calls must be `#[inline(always)]` and take that type.
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
                // SAFETY: as this function's features say.
                unsafe { generic::<$crate::wide::Avx2>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $type),*) $(-> $out)? {
                // SAFETY: as this function's features say.
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
            }
        }
    )+};
}
pub(crate) use for_each_wide;
