//! GEMM with AMX: tdpbssd multiplies tiles of signed bytes and accumulates in 32 bits.
//!
//! ```text
//! weights: 16 rows of 64 quants     activations: 16 x 4 quants of 16 rows   sums: [16, 16] of i32
//!   w[0][0..64]                       x[0][0..4]   x[1][0..4]   ...           w[0] x[0]  w[0] x[1] ..
//!   w[1][0..64]                 x     x[0][4..8]   x[1][4..8]   ...     =     w[1] x[0]  w[1] x[1] ..
//!   ...                               ...                                     ...
//! ```
//!
//! The integer scales of a super-block are multiplied into its quants.
//! The products, of up to thirteen bits and a sign, are split into bytes:
//! `scale * quant = 128 high + low`.
//! So the sums over a super-block stay exact integers.
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::{asm, x86_64::*};
use std::mem::MaybeUninit;

use super::microkernel::{BlockSums, SuperSums};
use super::pack::{BlockPanel, SUMS, SuperPanel};
use crate::activations::{BlockTile, SuperTile, TILE_ROWS};
use crate::matmul::vector::{Avx512, Vector};

/// The shapes of the eight tiles.
/// Source: Intel's Software Developer's Manual, volume 1, chapter 18.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    /// Bytes per row.
    widths: [u16; 8],
    also_reserved: [u8; 16],
    rows: [u8; 8],
    reserved_too: [u8; 8],
}

impl Shapes {
    const fn new(widths: [u16; 8], rows: [u8; 8]) -> Shapes {
        Shapes {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            widths,
            also_reserved: [0; 16],
            rows,
            reserved_too: [0; 8],
        }
    }
}

/// All tiles have the full size.
static WHOLE: Shapes = Shapes::new([64; 8], [16; 8]);
/// Four tiles of sums, then two of activations (eight rows), then two of weights (half width): a
/// block has 32 quants.
static BLOCKS: Shapes = Shapes::new([64, 64, 64, 64, 64, 64, 32, 32], [16, 16, 16, 16, 8, 8, 16, 16]);

/// Four tiles of sums: `[4, 16, TILE_ROWS]`.
#[repr(C, align(64))]
struct Sums([[[i32; TILE_ROWS]; 16]; 4]);

/// `scales[i / 16] * (quant[i] - zero_point)`, split into high and low bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn high_and_low(
    quants: [__m256i; 8],
    zero_point: i16,
    scales: &[i8; 16],
    high: &mut [u8; 256],
    low: &mut [u8; 256],
) {
    let scales = _mm256_cvtepi8_epi16(_mm_loadu_si128(scales.as_ptr().cast()));
    let scales = _mm512_castsi256_si512(scales);
    let zero_point = _mm512_set1_epi16(zero_point);
    let mut place = _mm512_inserti64x4::<1>(_mm512_setzero_si512(), _mm256_set1_epi16(1));
    for (i, quants) in quants.into_iter().enumerate() {
        let scale = _mm512_permutexvar_epi16(place, scales);
        place = _mm512_add_epi16(place, _mm512_set1_epi16(2));
        let quant = _mm512_sub_epi16(_mm512_cvtepi8_epi16(quants), zero_point);
        let product = _mm512_mullo_epi16(quant, scale);
        let upper = _mm512_srai_epi16::<7>(_mm512_add_epi16(product, _mm512_set1_epi16(64)));
        let lower = _mm512_sub_epi16(product, _mm512_slli_epi16::<7>(upper));
        _mm256_storeu_si256(high.as_mut_ptr().add(32 * i).cast(), _mm512_cvtepi16_epi8(upper));
        _mm256_storeu_si256(low.as_mut_ptr().add(32 * i).cast(), _mm512_cvtepi16_epi8(lower));
    }
}

/// Adds the products of a panel with all tiles of activations to their sums; there are 2 * PAIRS
/// minima.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn super_blocks<const PAIRS: usize>(
    panel: &SuperPanel,
    blocks: &[SuperTile],
    SuperSums { minima, fresh, sums, .. }: SuperSums,
) {
    // Tiles are stored here before they are read.
    let mut tiles = [const { MaybeUninit::<Sums>::uninit() }; 2];
    // If the last block has no partner, it is paired with itself, and the second result is
    // discarded.
    let mut forgotten = [0.0; SUMS];
    let forgotten = forgotten.as_mut_ptr();
    let halves = 2 * blocks.len().div_ceil(2);
    let pair = |half: usize| {
        let (one, other) = (half & !1, half | 1);
        match blocks.get(other) {
            Some(block) => ([&blocks[one], block], [sums.add(one * SUMS), sums.add(other * SUMS)]),
            None => ([&blocks[one]; 2], [sums.add(one * SUMS), forgotten]),
        }
    };
    let mut before = pair(0);
    asm!("ldtilecfg [{}]", in(reg) &raw const WHOLE, options(nostack, readonly));
    for half in 0..=halves {
        let now = if half < halves { pair(half) } else { before };
        for quarter in 0..4 {
            if half < halves {
                multiply_quarter(panel, now.0, half % 2, quarter);
            }
            // While the tiles are multiplied, the previous sums are scaled.
            if half > 0 {
                let rows = 16 * ((half - 1) % 2) + 4 * quarter;
                let of_tiles = tiles[(half - 1) % 2].assume_init_ref();
                scale_super_blocks::<PAIRS>(panel, before.0, minima, fresh, rows, of_tiles, before.1);
            }
        }
        if half < halves {
            store(tiles[half % 2].as_mut_ptr());
        }
        before = now;
    }
    asm!("tilerelease", options(nostack, nomem));
}

/// Adds a quarter of the quants to tile registers, for two tiles of activations.
/// Registers 0 and 1 hold the sums of the high bytes of half a panel, 2 and 3 those of the low
/// bytes.
#[inline(always)]
unsafe fn multiply_quarter(panel: &SuperPanel, blocks: [&SuperTile; 2], half: usize, quarter: usize) {
    if quarter == 0 {
        asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, nomem));
    }
    asm!(
        "tileloadd tmm4, [{one} + {line}]",
        "tileloadd tmm5, [{high} + {row}]",
        "tdpbssd tmm0, tmm5, tmm4",
        "tileloadd tmm6, [{other} + {line}]",
        "tdpbssd tmm1, tmm5, tmm6",
        "tileloadd tmm7, [{low} + {row}]",
        "tdpbssd tmm2, tmm7, tmm4",
        "tdpbssd tmm3, tmm7, tmm6",
        one = in(reg) blocks[0].quants.as_ptr().add(16 * quarter),
        other = in(reg) blocks[1].quants.as_ptr().add(16 * quarter),
        high = in(reg) panel.quants.as_ptr().add(16 * half).cast::<u8>().add(64 * quarter),
        low = in(reg) panel.low.as_ptr().add(16 * half).cast::<u8>().add(64 * quarter),
        line = in(reg) 64usize,
        row = in(reg) 256usize,
        options(nostack, readonly),
    );
}

#[inline(always)]
unsafe fn store(tiles: *mut Sums) {
    asm!(
        "tilestored [{to} + {line}], tmm0",
        "tilestored [{to} + {line} + 1024], tmm1",
        "tilestored [{to} + {line} + 2048], tmm2",
        "tilestored [{to} + {line} + 3072], tmm3",
        to = in(reg) tiles,
        line = in(reg) 64usize,
        options(nostack),
    );
}

/// Scales the sums of four rows of weights, starting at `first`.
#[allow(clippy::needless_range_loop)] // Iterators over arrays of registers aren't always unrolled.
#[inline(always)]
unsafe fn scale_super_blocks<const PAIRS: usize>(
    panel: &SuperPanel,
    blocks: [&SuperTile; 2],
    minima: bool,
    fresh: bool,
    first: usize,
    tiles: &Sums,
    sums: [*mut f32; 2],
) {
    for row in first..first + 4 {
        let scale = _mm512_set1_ps(*panel.scale.as_ptr().add(row));
        let minimum = _mm512_set1_ps(-*panel.minimum.as_ptr().add(row));
        let words = panel.minima.as_ptr().add(row).cast::<i32>();
        for i in 0..2 {
            let scales = _mm512_load_ps(blocks[i].scales.as_ptr());
            let high = _mm512_load_si512(tiles.0[i].as_ptr().add(row % 16).cast());
            let low = _mm512_load_si512(tiles.0[2 + i].as_ptr().add(row % 16).cast());
            let total = _mm512_add_epi32(_mm512_slli_epi32::<7>(high), low);
            let at = sums[i].add(row * TILE_ROWS);
            let factor = _mm512_mul_ps(scale, scales);
            let mut sum = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(total), Avx512::load_unless(fresh, at));
            if minima {
                let of_quants =
                    if PAIRS == 8 { blocks[i].sums.as_ptr() } else { blocks[i].wide_sums.as_ptr() };
                let mut total = _mm512_setzero_si512();
                for pair in 0..PAIRS {
                    let of_quants = _mm512_load_si512(of_quants.add(pair).cast());
                    total = Avx512::add_pairs(total, of_quants, _mm512_set1_epi32(*words.add(pair)));
                }
                sum = _mm512_fmadd_ps(_mm512_mul_ps(minimum, scales), _mm512_cvtepi32_ps(total), sum);
            }
            _mm512_storeu_ps(at, sum);
        }
    }
}

/// The blocks whose tiles are multiplied while the previous ones are scaled.
const BLOCKS_AT_ONCE: usize = 4;

/// Writes the products of a lane's blocks with those of all tiles of activations,
/// `[tiles, chunks]`, to their destination.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn blocks(
    panels: &[BlockPanel],
    blocks: &[BlockTile],
    BlockSums { offset, sums, .. }: BlockSums,
) {
    let mut tiles = [const { Sums([[[0; TILE_ROWS]; 16]; 4]) }; 2];
    // Sixteen rows of a block: the sums so far.
    let mut lanes = [_mm512_setzero_ps(); 16];
    let halves = 2 * blocks.len() / panels.len();
    let steps = halves * panels.len().div_ceil(BLOCKS_AT_ONCE);
    let (mut half, mut first) = (0, 0);
    let mut before = (half, first);
    asm!("ldtilecfg [{}]", in(reg) &raw const BLOCKS, options(nostack, readonly));
    for step in 0..=steps {
        let now = (half, first);
        if step < steps {
            let x = &blocks[half / 2 * panels.len()..][..panels.len()];
            multiply_blocks(&panels[first..], &x[first..], 16 * (half % 2));
            first += BLOCKS_AT_ONCE;
            if first >= panels.len() {
                (half, first) = (half + 1, 0);
            }
        }
        if step > 0 {
            let (half, first) = before;
            let x = &blocks[half / 2 * panels.len()..][..panels.len()];
            let tiles = &tiles[(step - 1) % 2];
            scale_blocks(&panels[first..], &x[first..], offset, 16 * (half % 2), tiles, &mut lanes);
            if first + BLOCKS_AT_ONCE >= panels.len() {
                let to = sums.add(half * 16 * TILE_ROWS);
                for (row, &sums) in lanes.iter().enumerate() {
                    _mm512_storeu_ps(to.add(row * TILE_ROWS), sums);
                }
                lanes = [_mm512_setzero_ps(); 16];
            }
        }
        if step < steps {
            store(&raw mut tiles[step % 2]);
        }
        before = now;
    }
    asm!("tilerelease", options(nostack, nomem));
}

/// Sets tiles 0 to 3 to the sums of up to four blocks, for the rows from `row` on.
#[inline(always)]
unsafe fn multiply_blocks(panels: &[BlockPanel], blocks: &[BlockTile], row: usize) {
    macro_rules! multiply {
        ($i:literal, $to:literal, $x:literal, $w:literal) => {
            if let (Some(panel), Some(block)) = (panels.get($i), blocks.get($i)) {
                asm!(
                    concat!("tilezero ", $to),
                    concat!("tileloadd ", $x, ", [{x} + {line}]"),
                    concat!("tileloadd ", $w, ", [{w} + {block}]"),
                    concat!("tdpbssd ", $to, ", ", $w, ", ", $x),
                    x = in(reg) block.quants.as_ptr(),
                    w = in(reg) panel.quants.as_ptr().add(row),
                    line = in(reg) 64usize,
                    block = in(reg) 32usize,
                    options(nostack, readonly),
                );
            }
        };
    }
    multiply!(0, "tmm0", "tmm4", "tmm6");
    multiply!(1, "tmm1", "tmm5", "tmm7");
    multiply!(2, "tmm2", "tmm4", "tmm6");
    multiply!(3, "tmm3", "tmm5", "tmm7");
}

/// Adds the scaled sums of up to four blocks to those of lanes.
#[allow(clippy::needless_range_loop)] // Iterators over arrays of registers aren't always unrolled.
#[inline(always)]
unsafe fn scale_blocks(
    panels: &[BlockPanel],
    blocks: &[BlockTile],
    offset: bool,
    first: usize,
    tiles: &Sums,
    lanes: &mut [__m512; 16],
) {
    for ((panel, block), tile) in panels.iter().zip(blocks).zip(&tiles.0) {
        let scales = _mm512_load_ps(block.scales.as_ptr());
        for row in 0..16 {
            let total = _mm512_cvtepi32_ps(_mm512_load_si512(tile.as_ptr().add(row).cast()));
            let factor = _mm512_mul_ps(_mm512_set1_ps(*panel.scales.as_ptr().add(first + row)), scales);
            lanes[row] = _mm512_fmadd_ps(factor, total, lanes[row]);
            if offset {
                let quant_sums = _mm512_cvtepi32_ps(_mm512_load_si512(block.sums.as_ptr().cast()));
                let factor = _mm512_mul_ps(_mm512_set1_ps(*panel.offsets.as_ptr().add(first + row)), scales);
                lanes[row] = _mm512_fmadd_ps(factor, quant_sums, lanes[row]);
            }
        }
    }
}

/// Multiplications and additions of [`round`].
pub(crate) const ROUND_OPERATIONS: usize = 64 * 4 * 2 * 16 * 16 * 64;

/// Multiplies tiles from the L1 cache, for measurements.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) unsafe fn round() {
    let tiles = [const { Sums([[[0; TILE_ROWS]; 16]; 4]) }; 1];
    asm!("ldtilecfg [{}]", in(reg) &raw const WHOLE, options(nostack, readonly));
    for _ in 0..64 {
        asm!(
            "tileloadd tmm4, [{at} + {line}]",
            "tileloadd tmm5, [{at} + {line} + 1024]",
            "tileloadd tmm6, [{at} + {line} + 2048]",
            "tileloadd tmm7, [{at} + {line} + 3072]",
            "tdpbssd tmm0, tmm4, tmm6",
            "tdpbssd tmm1, tmm5, tmm6",
            "tdpbssd tmm2, tmm4, tmm7",
            "tdpbssd tmm3, tmm5, tmm7",
            at = in(reg) tiles.as_ptr(),
            line = in(reg) 64usize,
            options(nostack, readonly),
        );
    }
    asm!("tilerelease", options(nostack, nomem));
}
