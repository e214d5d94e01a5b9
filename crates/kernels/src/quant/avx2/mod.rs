//! The codecs with AVX2, FMA and F16C.
//!
//! Everything here is inlined into functions that have these features, and is not called from
//! anywhere else.
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

/// `[f(0), f(1), .. f(7)]`.
/// Not a function, because a closure that isn't inlined loses the features.
macro_rules! each {
    ($i:ident => $f:expr) => {
        each!($i => $f; 0 1 2 3 4 5 6 7)
    };
    ($i:ident => $f:expr; $($value:literal)+) => {
        [$({
            let $i: usize = $value;
            $f
        }),+]
    };
}

pub(crate) use each;

mod iq;
mod sub_blocks;
mod unpack;

use std::arch::x86_64::*;
use std::marker::PhantomData;

pub(crate) use self::sub_blocks::SubBlocks;
use self::unpack::SimdFloat;
pub(crate) use self::unpack::{Encoding, SimdBlock, SimdSuperBlock, in_a_row};
use super::Codec;
use crate::activations::Activations;
use crate::format::{FLOAT_CHUNK, SUPER_BLOCK};
use crate::lanes::LANES;

/// Blocks of a format.
pub(crate) struct Blocks<F>(PhantomData<F>);

/// Eight blocks, unpacked.
pub(crate) struct UnpackedBlocks {
    quants: [__m256i; LANES],
    scales: __m256,
    offsets: __m256,
}

impl<F: SimdBlock> Codec for Blocks<F> {
    const LEN: usize = SUPER_BLOCK;
    const BYTES: usize = LANES * F::FORMAT.block_bytes();
    type Chunk = UnpackedBlocks;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> UnpackedBlocks {
        assert!(bytes.len() == Self::BYTES);
        let chunk = bytes.as_ptr();
        UnpackedBlocks {
            quants: each!(lane => F::vector(chunk.add(lane * F::FORMAT.block_bytes()))),
            scales: F::scales(in_a_row(chunk, F::FORMAT.block_bytes())),
            offsets: if F::OFFSET {
                F::offsets(in_a_row(chunk, F::FORMAT.block_bytes()))
            } else {
                _mm256_setzero_ps()
            },
        }
    }

    #[inline(always)]
    unsafe fn dot(
        chunk: &UnpackedBlocks,
        x: &Activations,
        row: usize,
        index: usize,
        lanes: &mut [f32; LANES],
    ) {
        let (quants, sums, scales) = x.blocks(row, index);
        let ones = _mm256_set1_epi16(1);
        let products = each!(lane => {
            let x = _mm256_loadu_si256(quants[32 * lane..][..32].as_ptr().cast());
            _mm256_madd_epi16(pairs(chunk.quants[lane], x, F::ENCODING), ones)
        });
        let scales = _mm256_loadu_ps(scales[..LANES].as_ptr());
        let mut sum = _mm256_loadu_ps(lanes.as_ptr());
        let sums = _mm256_loadu_si256(sums[..16].as_ptr().cast());
        let mut total = totals(products);
        if let Encoding::Unsigned(zero_point @ 1..) = F::ENCODING {
            total = _mm256_sub_epi32(total, _mm256_madd_epi16(sums, _mm256_set1_epi16(zero_point)));
        }
        sum = _mm256_fmadd_ps(_mm256_mul_ps(chunk.scales, scales), _mm256_cvtepi32_ps(total), sum);
        if F::OFFSET {
            let total = _mm256_cvtepi32_ps(_mm256_madd_epi16(sums, ones));
            sum = _mm256_fmadd_ps(_mm256_mul_ps(chunk.offsets, scales), total, sum);
        }
        _mm256_storeu_ps(lanes.as_mut_ptr(), sum);
    }
}

/// Super-blocks of a format.
pub(crate) struct SuperBlocks<F>(PhantomData<F>);

/// One super-block, unpacked.
pub(crate) struct UnpackedSuperBlock {
    quants: [__m256i; SUPER_BLOCK / 32],
    /// Sixteen bytes, duplicated in each half.
    scales: __m256i,
    /// Sixteen words.
    minima: __m256i,
    scale: f32,
    minimum: f32,
}

impl<F: SimdSuperBlock> Codec for SuperBlocks<F> {
    const LEN: usize = SUPER_BLOCK;
    const BYTES: usize = F::FORMAT.block_bytes();
    type Chunk = UnpackedSuperBlock;

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> UnpackedSuperBlock {
        assert!(bytes.len() == Self::BYTES);
        let (scales, minima) = F::scales(bytes);
        let (scale, minimum) = F::factors(bytes.as_ptr());
        UnpackedSuperBlock {
            quants: F::vectors(bytes.as_ptr()),
            scales: _mm256_broadcastsi128_si256(_mm_loadu_si128(scales.as_ptr().cast())),
            minima: _mm256_cvtepu8_epi16(_mm_loadu_si128(minima.as_ptr().cast())),
            scale,
            minimum,
        }
    }

    #[inline(always)]
    unsafe fn dot(
        chunk: &UnpackedSuperBlock,
        x: &Activations,
        row: usize,
        index: usize,
        lanes: &mut [f32; LANES],
    ) {
        let (quants, sums, scale) = x.super_block(row, index);
        let mut total = _mm256_setzero_si256();
        for (sub_block, &w) in chunk.quants.iter().enumerate() {
            let x = _mm256_loadu_si256(quants[32 * sub_block..][..32].as_ptr().cast());
            // Scales 2i and 2i + 1, each in the upper halves of eight words: shifting them down
            // preserves the sign.
            let place = _mm256_loadu_si256(SCALE_PLACES[sub_block].as_ptr().cast());
            let scales = _mm256_srai_epi16(_mm256_shuffle_epi8(chunk.scales, place), 8);
            total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs(w, x, F::ENCODING), scales));
        }
        let sums = _mm256_loadu_si256(sums[..16].as_ptr().cast());
        if let Encoding::Unsigned(zero_point @ 1..) = F::ENCODING {
            let scales = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(chunk.scales));
            let correction = _mm256_madd_epi16(sums, scales);
            total = _mm256_sub_epi32(
                total,
                _mm256_mullo_epi32(correction, _mm256_set1_epi32(i32::from(zero_point))),
            );
        }
        let lane = &mut lanes[index % LANES];
        *lane = (chunk.scale * scale).mul_add(all(total) as f32, *lane);
        if F::MINIMA {
            let total = all(_mm256_madd_epi16(chunk.minima, sums));
            *lane = (-chunk.minimum * scale).mul_add(total as f32, *lane);
        }
    }
}

/// For sub-block i, a shuffle that puts scale `2i` into the upper bytes of eight words, and
/// `2i + 1` into those of eight more.
static SCALE_PLACES: [[u8; 32]; 8] = {
    let mut places = [[0x80; 32]; 8];
    let mut i = 0;
    while i < 128 {
        places[i / 16][i % 16 * 2 + 1] = (i / 8) as u8;
        i += 1;
    }
    places
};

/// Floats of a format.
pub(crate) struct Floats<F>(PhantomData<F>);

impl<F: SimdFloat> Codec for Floats<F> {
    const LEN: usize = FLOAT_CHUNK;
    const BYTES: usize = FLOAT_CHUNK * F::BYTES;
    type Chunk = [__m256; FLOAT_CHUNK / LANES];

    #[inline(always)]
    unsafe fn unpack(bytes: &[u8]) -> Self::Chunk {
        assert!(bytes.len() == Self::BYTES);
        each!(i => F::widen_eight(bytes.as_ptr().add(i * LANES * F::BYTES)))
    }

    #[inline(always)]
    unsafe fn dot(w: &Self::Chunk, x: &Activations, row: usize, index: usize, lanes: &mut [f32; LANES]) {
        let x = x.floats(row, index);
        let mut sum = _mm256_loadu_ps(lanes.as_ptr());
        for (i, &w) in w.iter().enumerate() {
            sum = _mm256_fmadd_ps(w, _mm256_loadu_ps(x[LANES * i..][..LANES].as_ptr()), sum);
        }
        _mm256_storeu_ps(lanes.as_mut_ptr(), sum);
    }
}

/// Sixteen sums of two products (vpmaddubsw: unsigned times signed bytes, saturated to words).
/// They can't saturate: activations are within -127..=127, so that a sum is at most
/// 2 · 128 · 127 = 32512.
#[inline(always)]
pub(crate) unsafe fn pairs(w: __m256i, x: __m256i, encoding: Encoding) -> __m256i {
    match encoding {
        Encoding::Unsigned(_) => _mm256_maddubs_epi16(w, x),
        // |w| * (x with the sign of w).
        Encoding::Signed => _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)),
    }
}

/// The horizontal sums of eight vectors.
#[inline(always)]
unsafe fn totals(v: [__m256i; 8]) -> __m256i {
    let low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    let high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31))
}

/// The horizontal sum of a vector.
#[inline(always)]
unsafe fn all(v: __m256i) -> i32 {
    let v = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    let v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0b01_00_11_10));
    _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32(v, 0b10_11_00_01)))
}
