//! Unpacks each format's quants and scales into vectors.
//! The scalar versions document the layouts.

use std::arch::x86_64::*;

use crate::quant::codebook::{E2M1, IQ4_NL, IQ4_XS, MXFP4, UNEVEN};
use crate::quant::float::{BF16, F16, F32};
use crate::quant::k::{Q2_K, Q3_K, Q4_K, Q5_K, Q6_K};
use crate::quant::legacy::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use crate::quant::ternary::{TQ1_0, TQ2_0};
use crate::quant::{Block, Float, SuperBlock};

/// How bytes represent quants.
/// The instructions that multiply bytes (vpmaddubsw, vpdpbusd) need one unsigned factor, so the
/// zero point is subtracted from the whole sum.
#[derive(Clone, Copy)]
pub(crate) enum Encoding {
    /// The quants with this zero point added, so that none is negative.
    /// With at most 129 times 127, no sum of two products saturates.
    Unsigned(i16),
    /// The unchanged quants.
    Signed,
}

/// [`Block`] with vectors.
/// Pointers are to whole blocks.
pub(crate) trait SimdBlock: Block {
    /// The encoding of the result of [`SimdBlock::vector`].
    const ENCODING: Encoding = Encoding::Unsigned(0);
    /// The greatest magnitude in the result of [`SimdBlock::vector`].
    const MAX_QUANT: u8;
    /// Whether a block ends in sixteen bytes of nibbles that contain all of its quants.
    const NIBBLES: bool = true;

    /// The quants that nibbles encode, one per byte, with the zero point.
    #[inline(always)]
    unsafe fn of_nibbles(nibbles: __m256i) -> __m256i {
        nibbles
    }

    /// The quants of a block, with the zero point.
    #[inline(always)]
    unsafe fn vector(block: *const u8) -> __m256i {
        const { assert!(Self::NIBBLES) };
        Self::of_nibbles(nibbles(block.add(Self::FORMAT.block_bytes() - 16)))
    }

    /// The quants of eight blocks, with the zero point, their scales and offsets.
    #[inline(always)]
    unsafe fn eight(bytes: &[u8]) -> ([__m256i; 8], [f32; 8], [f32; 8]) {
        let size = Self::FORMAT.block_bytes();
        assert!(bytes.len() == 8 * size);
        let blocks = in_a_row(bytes.as_ptr(), size);
        let (mut scales, mut offsets) = ([0f32; 8], [0f32; 8]);
        _mm256_storeu_ps(scales.as_mut_ptr(), Self::scales(blocks));
        if Self::OFFSET {
            _mm256_storeu_ps(offsets.as_mut_ptr(), Self::offsets(blocks));
        }
        (each!(i => Self::vector(blocks[i])), scales, offsets)
    }

    /// The scales of eight blocks: half-precision numbers at their start, unless otherwise defined.
    #[inline(always)]
    unsafe fn scales(blocks: [*const u8; 8]) -> __m256 {
        halves(blocks)
    }

    /// The offsets of eight blocks, if the format has any.
    #[inline(always)]
    unsafe fn offsets(blocks: [*const u8; 8]) -> __m256 {
        halves(each!(i => blocks[i].add(2)))
    }
}

/// [`SuperBlock`] with vectors.
/// Pointers are to whole blocks.
pub(crate) trait SimdSuperBlock: SuperBlock {
    /// The encoding of the result of [`SimdSuperBlock::vectors`].
    const ENCODING: Encoding = Encoding::Unsigned(0);
    /// The greatest magnitude in the result of [`SimdSuperBlock::vectors`].
    const MAX_QUANT: u8;
    /// Whether scales are shared by sixteen quants rather than 32.
    const SUB_BLOCKS_OF_16: bool;

    /// The quants of a block, with the zero point.
    unsafe fn vectors(block: *const u8) -> [__m256i; 8];

    /// The super-block scale of scales, and that of minima.
    #[inline(always)]
    unsafe fn factors(block: *const u8) -> (f32, f32) {
        let minimum = if Self::MINIMA { half(block.add(Self::SCALE_AT + 2)) } else { 0.0 };
        (half(block.add(Self::SCALE_AT)) * Self::SCALE_FACTOR, minimum)
    }
}

/// [`Float`] with vectors.
pub(crate) trait SimdFloat: Float {
    /// Eight numbers.
    unsafe fn widen_eight(bytes: *const u8) -> __m256;
}

/// A half-precision number.
#[inline(always)]
pub(super) unsafe fn half(at: *const u8) -> f32 {
    _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(at.cast::<u16>().read_unaligned()))))
}

/// Eight consecutive blocks of this many bytes.
#[inline(always)]
pub(crate) fn in_a_row(first: *const u8, bytes: usize) -> [*const u8; 8] {
    each!(i => first.wrapping_add(i * bytes))
}

/// Eight half-precision numbers; sixteen bytes are readable at each address.
#[inline(always)]
unsafe fn halves(at: [*const u8; 8]) -> __m256 {
    // Cheaper than inserting one after the other.
    let load = |i: usize| _mm_loadu_si128(at[i].cast());
    let two = |i: usize| _mm_unpacklo_epi16(load(i), load(i + 1));
    let (low, high) = (_mm_unpacklo_epi32(two(0), two(2)), _mm_unpacklo_epi32(two(4), two(6)));
    _mm256_cvtph_ps(_mm_unpacklo_epi64(low, high))
}

#[inline(always)]
pub(super) unsafe fn load(at: *const u8) -> __m256i {
    _mm256_loadu_si256(at.cast())
}

/// Repeats one byte.
#[inline(always)]
pub(super) unsafe fn bytes(byte: u8) -> __m256i {
    _mm256_set1_epi8(byte as i8)
}

/// Every byte shifted right and masked with `mask`.
#[inline(always)]
unsafe fn field(v: __m256i, shift: usize, mask: u8) -> __m256i {
    _mm256_and_si256(_mm256_srl_epi16(v, _mm_cvtsi32_si128(shift as i32)), bytes(mask))
}

/// `value` in every byte in which the bit is set.
#[inline(always)]
unsafe fn flag(v: __m256i, bit: usize, value: u8) -> __m256i {
    let bit = bytes(1 << bit);
    _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit), bytes(value))
}

/// The lower nibbles of sixteen bytes, then the upper ones.
#[inline(always)]
unsafe fn nibbles(at: *const u8) -> __m256i {
    let v = _mm256_broadcastsi128_si256(_mm_loadu_si128(at.cast()));
    // Bits shifted in from neighboring bytes are masked.
    let shifted = _mm256_srlv_epi32(v, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    _mm256_and_si256(shifted, bytes(15))
}

/// Sets all bits of byte i if bit i is set.
#[inline(always)]
pub(super) unsafe fn set_bits(bits: u32) -> __m256i {
    let bits = _mm256_set1_epi32(bits as i32);
    // Byte i / 8 to position i, where bit i % 8 is tested.
    let spread = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(bits, spread), bit), bit)
}

/// Fifth bits and nibbles.
#[inline(always)]
unsafe fn five_bits(at: *const u8) -> __m256i {
    let fifth = set_bits(at.cast::<u32>().read_unaligned());
    _mm256_or_si256(nibbles(at.add(4)), _mm256_and_si256(fifth, bytes(16)))
}

/// Looks up these indices in a table.
#[inline(always)]
pub(super) unsafe fn look_up(table: &[i8; 16], places: __m256i) -> __m256i {
    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())), places)
}

impl SimdBlock for Q4_0 {
    const ENCODING: Encoding = Encoding::Unsigned(8);
    const MAX_QUANT: u8 = 15;
}

impl SimdBlock for Q4_1 {
    const MAX_QUANT: u8 = 15;
}

impl SimdBlock for Q5_0 {
    const ENCODING: Encoding = Encoding::Unsigned(16);
    const MAX_QUANT: u8 = 31;
    const NIBBLES: bool = false;

    #[inline(always)]
    unsafe fn vector(block: *const u8) -> __m256i {
        five_bits(block.add(2))
    }
}

impl SimdBlock for Q5_1 {
    const MAX_QUANT: u8 = 31;
    const NIBBLES: bool = false;

    #[inline(always)]
    unsafe fn vector(block: *const u8) -> __m256i {
        five_bits(block.add(4))
    }
}

impl SimdBlock for Q8_0 {
    const ENCODING: Encoding = Encoding::Signed;
    const MAX_QUANT: u8 = 128;
    const NIBBLES: bool = false;

    #[inline(always)]
    unsafe fn vector(block: *const u8) -> __m256i {
        load(block.add(2))
    }
}

impl SimdBlock for IQ4_NL {
    const ENCODING: Encoding = Encoding::Signed;
    const MAX_QUANT: u8 = 127;

    #[inline(always)]
    unsafe fn of_nibbles(nibbles: __m256i) -> __m256i {
        look_up(&UNEVEN, nibbles)
    }
}

impl SimdBlock for MXFP4 {
    const ENCODING: Encoding = Encoding::Unsigned(12);
    const MAX_QUANT: u8 = 24;

    #[inline(always)]
    unsafe fn of_nibbles(nibbles: __m256i) -> __m256i {
        look_up(&E2M1.map(|value| value + 12), nibbles)
    }

    #[inline(always)]
    unsafe fn scales(blocks: [*const u8; 8]) -> __m256 {
        // The first byte of block i becomes byte 0 of number i, loaded from 4 i bytes earlier.
        let load = |i: usize| load(blocks[i].wrapping_sub(4 * i));
        let v = _mm256_blend_epi32::<0b10>(load(0), load(1));
        let v = _mm256_blend_epi32::<0b1000>(_mm256_blend_epi32::<0b100>(v, load(2)), load(3));
        let v = _mm256_blend_epi32::<0b10_0000>(_mm256_blend_epi32::<0b1_0000>(v, load(4)), load(5));
        let v = _mm256_blend_epi32::<0b1000_0000>(_mm256_blend_epi32::<0b100_0000>(v, load(6)), load(7));
        let exponents = _mm256_and_si256(v, _mm256_set1_epi32(255));
        // As `e8m0_half`; the greater one is correct.
        let one = _mm256_set1_epi32(1);
        let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(exponents, one));
        let subnormal = _mm256_slli_epi32::<21>(_mm256_add_epi32(exponents, one));
        _mm256_castsi256_ps(_mm256_max_epi32(normal, subnormal))
    }
}

impl SimdSuperBlock for IQ4_XS {
    const ENCODING: Encoding = Encoding::Signed;
    const MAX_QUANT: u8 = 127;
    const SUB_BLOCKS_OF_16: bool = false;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        each!(sub_block => look_up(&UNEVEN, nibbles(block.add(8 + 16 * sub_block))))
    }
}

impl SimdSuperBlock for Q2_K {
    const MAX_QUANT: u8 = 3;
    const SUB_BLOCKS_OF_16: bool = true;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        each!(sub_block => field(load(block.add(16 + sub_block / 4 * 32)), sub_block % 4 * 2, 3))
    }
}

impl SimdSuperBlock for Q3_K {
    const ENCODING: Encoding = Encoding::Unsigned(4);
    const MAX_QUANT: u8 = 7;
    const SUB_BLOCKS_OF_16: bool = true;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        let third = load(block);
        each!(sub_block => {
            let low = field(load(block.add(32 + sub_block / 4 * 32)), sub_block % 4 * 2, 3);
            _mm256_or_si256(low, flag(third, sub_block, 4))
        })
    }
}

impl SimdSuperBlock for Q4_K {
    const MAX_QUANT: u8 = 15;
    const SUB_BLOCKS_OF_16: bool = false;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        each!(sub_block => field(load(block.add(16 + sub_block / 2 * 32)), sub_block % 2 * 4, 15))
    }
}

impl SimdSuperBlock for Q5_K {
    const MAX_QUANT: u8 = 31;
    const SUB_BLOCKS_OF_16: bool = false;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        let fifth = load(block.add(16));
        each!(sub_block => {
            let low = field(load(block.add(48 + sub_block / 2 * 32)), sub_block % 2 * 4, 15);
            _mm256_or_si256(low, flag(fifth, sub_block, 16))
        })
    }
}

impl SimdSuperBlock for Q6_K {
    const ENCODING: Encoding = Encoding::Unsigned(32);
    const MAX_QUANT: u8 = 63;
    const SUB_BLOCKS_OF_16: bool = true;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        each!(sub_block => {
            let low = field(load(block.add(sub_block / 4 * 64 + sub_block % 2 * 32)), sub_block % 4 / 2 * 4, 15);
            let high = field(load(block.add(128 + sub_block / 4 * 32)), sub_block % 4 * 2, 3);
            _mm256_or_si256(low, _mm256_slli_epi16(high, 4))
        })
    }
}

/// The ternary digits of 32 bytes; `powers` are words.
#[inline(always)]
unsafe fn digits(v: __m256i, powers: __m256i) -> __m256i {
    let (byte, three) = (_mm256_set1_epi16(255), _mm256_set1_epi16(3));
    // After multiplying by a power, multiply the lower byte by three, and take the upper byte.
    let tripled = |v: __m256i| {
        let rest = _mm256_and_si256(_mm256_mullo_epi16(v, powers), byte);
        _mm256_mullo_epi16(rest, three)
    };
    let even = _mm256_srli_epi16::<8>(tripled(_mm256_and_si256(v, byte)));
    let odd = _mm256_andnot_si256(byte, tripled(_mm256_srli_epi16::<8>(v)));
    _mm256_or_si256(even, odd)
}

impl SimdSuperBlock for TQ1_0 {
    const ENCODING: Encoding = Encoding::Unsigned(1);
    const MAX_QUANT: u8 = 2;
    const SUB_BLOCKS_OF_16: bool = false;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        let (wide, narrow) = (load(block), _mm_loadu_si128(block.add(32).cast()));
        let four = _mm_set1_epi32(block.add(48).cast::<i32>().read_unaligned());
        let last = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(narrow), four);
        let narrow = _mm256_broadcastsi128_si256(narrow);
        let power = |power: i16| _mm_set1_epi16(power);
        let both =
            |low: __m128i, high: __m128i| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high);
        [
            digits(wide, _mm256_set1_epi16(1)),
            digits(wide, _mm256_set1_epi16(3)),
            digits(wide, _mm256_set1_epi16(9)),
            digits(wide, _mm256_set1_epi16(27)),
            digits(wide, _mm256_set1_epi16(81)),
            digits(narrow, both(power(1), power(3))),
            digits(narrow, both(power(9), power(27))),
            digits(last, both(power(81), _mm_setr_epi16(1, 1, 3, 3, 9, 9, 27, 27))),
        ]
    }
}

impl SimdSuperBlock for TQ2_0 {
    const ENCODING: Encoding = Encoding::Unsigned(1);
    const MAX_QUANT: u8 = 3;
    const SUB_BLOCKS_OF_16: bool = false;

    #[inline(always)]
    unsafe fn vectors(block: *const u8) -> [__m256i; 8] {
        each!(sub_block => field(load(block.add(sub_block / 4 * 32)), sub_block % 4 * 2, 3))
    }
}

impl SimdFloat for F32 {
    #[inline(always)]
    unsafe fn widen_eight(bytes: *const u8) -> __m256 {
        _mm256_loadu_ps(bytes.cast())
    }
}

impl SimdFloat for F16 {
    #[inline(always)]
    unsafe fn widen_eight(bytes: *const u8) -> __m256 {
        _mm256_cvtph_ps(_mm_loadu_si128(bytes.cast()))
    }
}

impl SimdFloat for BF16 {
    #[inline(always)]
    unsafe fn widen_eight(bytes: *const u8) -> __m256 {
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(bytes.cast())), 16))
    }
}
