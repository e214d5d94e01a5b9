//! Products by tiles: AMX.
//!
//! A tile of weights is sixteen rows of 64 codes, one of activations sixteen rows side by side. A superblock's integer
//! scales are multiplied into its codes, and the products, of up to thirteen bits and a sign, become two planes of bytes:
//! `scale * code = 128 high + low`. So the sums over a superblock stay exact integers.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::{asm, x86_64::*};

use super::panel::{ROWS, RunPanel, SUMS, SuperPanel};
use crate::activations::{RunBlock, SuperBlock, TOKENS};
use crate::lanes::LANES;

/// The shapes of the eight tiles. Source: Intel's Software Developer's Manual, volume 1, chapter 18.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    /// Bytes of a row.
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

/// All tiles are whole.
static WHOLE: Shapes = Shapes::new([64; 8], [16; 8]);
/// Four of sums, then two of activations (eight rows), then two of weights (half as wide): a run is 32 codes.
static RUNS: Shapes = Shapes::new([64, 64, 64, 64, 64, 64, 32, 32], [16, 16, 16, 16, 8, 8, 16, 16]);

/// Four tiles of sums: `[4, 16, TOKENS]`.
#[repr(C, align(64))]
struct Sums([[[i32; TOKENS]; 16]; 4]);

/// `scales[i / 16] * (code[i] - bias)` in two planes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn planes(
    codes: [__m256i; 8],
    bias: i16,
    scales: &[i8; 16],
    high: &mut [u8; 256],
    low: &mut [u8; 256],
) {
    let scales = _mm256_cvtepi8_epi16(_mm_loadu_si128(scales.as_ptr().cast()));
    let scales = _mm512_castsi256_si512(scales);
    let bias = _mm512_set1_epi16(bias);
    let mut place = _mm512_inserti64x4::<1>(_mm512_setzero_si512(), _mm256_set1_epi16(1));
    for (i, codes) in codes.into_iter().enumerate() {
        let scale = _mm512_permutexvar_epi16(place, scales);
        place = _mm512_add_epi16(place, _mm512_set1_epi16(2));
        let code = _mm512_sub_epi16(_mm512_cvtepi8_epi16(codes), bias);
        let product = _mm512_mullo_epi16(code, scale);
        let upper = _mm512_srai_epi16::<7>(_mm512_add_epi16(product, _mm512_set1_epi16(64)));
        let lower = _mm512_sub_epi16(product, _mm512_slli_epi16::<7>(upper));
        _mm256_storeu_si256(high.as_mut_ptr().add(32 * i).cast(), _mm512_cvtepi16_epi8(upper));
        _mm256_storeu_si256(low.as_mut_ptr().add(32 * i).cast(), _mm512_cvtepi16_epi8(lower));
    }
}

/// Adds the products of a panel with all blocks to `sums: [blocks, ROWS, TOKENS]`; there are 2 * PAIRS minima.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn supers<const PAIRS: usize>(
    panel: &SuperPanel,
    blocks: &[SuperBlock],
    minima: bool,
    sums: *mut f32,
) {
    let mut tiles = [const { Sums([[[0; TOKENS]; 16]; 4]) }; 2];
    asm!("ldtilecfg [{}]", in(reg) &raw const WHOLE, options(nostack, readonly));
    for step in 0..=blocks.len() {
        if let Some(block) = blocks.get(step) {
            multiply_super(panel, block);
        }
        // While the tiles are multiplied, the sums of the block before are scaled.
        if let Some(before) = step.checked_sub(1) {
            scale_super::<PAIRS>(panel, &blocks[before], minima, &tiles[before % 2], sums.add(before * SUMS));
        }
        if step < blocks.len() {
            store(&mut tiles[step % 2]);
        }
    }
    asm!("tilerelease", options(nostack, nomem));
}

/// Tiles 0 and 1 become the high and low sums of the first sixteen rows, 2 and 3 those of the others.
#[inline(always)]
unsafe fn multiply_super(panel: &SuperPanel, block: &SuperBlock) {
    asm!(
        "tilezero tmm0",
        "tilezero tmm1",
        "tilezero tmm2",
        "tilezero tmm3",
        "tileloadd tmm4, [{x} + {line}]",
        "tileloadd tmm5, [{high} + {row}]",
        "tdpbssd tmm0, tmm5, tmm4",
        "tileloadd tmm6, [{low} + {row}]",
        "tdpbssd tmm1, tmm6, tmm4",
        "tileloadd tmm5, [{high} + {row} + 4096]",
        "tdpbssd tmm2, tmm5, tmm4",
        "tileloadd tmm6, [{low} + {row} + 4096]",
        "tdpbssd tmm3, tmm6, tmm4",
        "tileloadd tmm7, [{x} + {line} + 1024]",
        "tileloadd tmm5, [{high} + {row} + 64]",
        "tdpbssd tmm0, tmm5, tmm7",
        "tileloadd tmm6, [{low} + {row} + 64]",
        "tdpbssd tmm1, tmm6, tmm7",
        "tileloadd tmm5, [{high} + {row} + 4160]",
        "tdpbssd tmm2, tmm5, tmm7",
        "tileloadd tmm6, [{low} + {row} + 4160]",
        "tdpbssd tmm3, tmm6, tmm7",
        "tileloadd tmm4, [{x} + {line} + 2048]",
        "tileloadd tmm5, [{high} + {row} + 128]",
        "tdpbssd tmm0, tmm5, tmm4",
        "tileloadd tmm6, [{low} + {row} + 128]",
        "tdpbssd tmm1, tmm6, tmm4",
        "tileloadd tmm5, [{high} + {row} + 4224]",
        "tdpbssd tmm2, tmm5, tmm4",
        "tileloadd tmm6, [{low} + {row} + 4224]",
        "tdpbssd tmm3, tmm6, tmm4",
        "tileloadd tmm7, [{x} + {line} + 3072]",
        "tileloadd tmm5, [{high} + {row} + 192]",
        "tdpbssd tmm0, tmm5, tmm7",
        "tileloadd tmm6, [{low} + {row} + 192]",
        "tdpbssd tmm1, tmm6, tmm7",
        "tileloadd tmm5, [{high} + {row} + 4288]",
        "tdpbssd tmm2, tmm5, tmm7",
        "tileloadd tmm6, [{low} + {row} + 4288]",
        "tdpbssd tmm3, tmm6, tmm7",
        x = in(reg) block.codes.as_ptr(),
        high = in(reg) panel.codes.as_ptr(),
        low = in(reg) panel.low.as_ptr(),
        line = in(reg) 64usize,
        row = in(reg) 256usize,
        options(nostack, readonly),
    );
}

#[inline(always)]
unsafe fn store(tiles: &mut Sums) {
    asm!(
        "tilestored [{to} + {line}], tmm0",
        "tilestored [{to} + {line} + 1024], tmm1",
        "tilestored [{to} + {line} + 2048], tmm2",
        "tilestored [{to} + {line} + 3072], tmm3",
        to = in(reg) tiles.0.as_mut_ptr(),
        line = in(reg) 64usize,
        options(nostack),
    );
}

#[allow(clippy::needless_range_loop)] // Iterators over arrays of registers aren't always unrolled.
#[inline(always)]
unsafe fn scale_super<const PAIRS: usize>(
    panel: &SuperPanel,
    block: &SuperBlock,
    minima: bool,
    tiles: &Sums,
    sums: *mut f32,
) {
    let scales = _mm512_load_ps(block.scales.as_ptr());
    let code_sums = if PAIRS == 8 { block.sums.as_ptr() } else { block.wide_sums.as_ptr() };
    let mut of_codes = [_mm512_setzero_si512(); PAIRS];
    for pair in 0..PAIRS {
        of_codes[pair] = _mm512_load_si512(code_sums.add(pair).cast());
    }
    for row in 0..ROWS {
        let tile = row / 16 * 2;
        let high = _mm512_load_si512(tiles.0[tile][row % 16].as_ptr().cast());
        let low = _mm512_load_si512(tiles.0[tile + 1][row % 16].as_ptr().cast());
        let total = _mm512_add_epi32(_mm512_slli_epi32::<7>(high), low);
        let at = sums.add(row * TOKENS);
        let factor = _mm512_mul_ps(_mm512_set1_ps(panel.scale[row]), scales);
        let mut sum = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(total), _mm512_loadu_ps(at));
        if minima {
            let mut total = _mm512_setzero_si512();
            for pair in 0..PAIRS {
                total =
                    _mm512_dpwssd_epi32(total, of_codes[pair], _mm512_set1_epi32(panel.minima[row][pair]));
            }
            let factor = _mm512_mul_ps(_mm512_set1_ps(-panel.minimum[row]), scales);
            sum = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(total), sum);
        }
        _mm512_storeu_ps(at, sum);
    }
}

/// Adds the products of a panel with a block to `sums: [LANES, ROWS, TOKENS]`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn runs(panel: &RunPanel, block: &RunBlock, offset: bool, sums: *mut f32) {
    let mut tiles = [const { Sums([[[0; TOKENS]; 16]; 4]) }; 2];
    asm!("ldtilecfg [{}]", in(reg) &raw const RUNS, options(nostack, readonly));
    for step in 0..=LANES / 2 {
        if step < LANES / 2 {
            multiply_runs(panel, block, 2 * step);
        }
        // While the tiles are multiplied, the sums of the runs before are scaled.
        if let Some(before) = step.checked_sub(1) {
            scale_runs(panel, block, offset, 2 * before, &tiles[before % 2], sums);
        }
        if step < LANES / 2 {
            store(&mut tiles[step % 2]);
        }
    }
    asm!("tilerelease", options(nostack, nomem));
}

/// Tiles 0 and 1 become the sums of `run`, 2 and 3 those of the next.
#[inline(always)]
unsafe fn multiply_runs(panel: &RunPanel, block: &RunBlock, run: usize) {
    asm!(
        "tilezero tmm0",
        "tilezero tmm1",
        "tilezero tmm2",
        "tilezero tmm3",
        "tileloadd tmm4, [{x} + {line}]",
        "tileloadd tmm6, [{w} + {row}]",
        "tdpbssd tmm0, tmm6, tmm4",
        "tileloadd tmm7, [{w} + {row} + 4096]",
        "tdpbssd tmm1, tmm7, tmm4",
        "tileloadd tmm5, [{x} + {line} + 512]",
        "tileloadd tmm6, [{w} + {row} + 32]",
        "tdpbssd tmm2, tmm6, tmm5",
        "tileloadd tmm7, [{w} + {row} + 4128]",
        "tdpbssd tmm3, tmm7, tmm5",
        x = in(reg) block.codes.as_ptr().add(8 * run),
        w = in(reg) panel.codes.as_ptr().cast::<u8>().add(32 * run),
        line = in(reg) 64usize,
        row = in(reg) 256usize,
        options(nostack, readonly),
    );
}

#[inline(always)]
unsafe fn scale_runs(
    panel: &RunPanel,
    block: &RunBlock,
    offset: bool,
    first: usize,
    tiles: &Sums,
    sums: *mut f32,
) {
    for second in 0..2 {
        let run = first + second;
        let scales = _mm512_load_ps(block.scales[run].as_ptr());
        let code_sums = _mm512_cvtepi32_ps(_mm512_load_si512(block.sums[run].as_ptr().cast()));
        for row in 0..ROWS {
            let total = _mm512_load_si512(tiles.0[2 * second + row / 16][row % 16].as_ptr().cast());
            let at = sums.add(run * SUMS + row * TOKENS);
            let factor = _mm512_mul_ps(_mm512_set1_ps(panel.scales[row][run]), scales);
            let mut sum = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(total), _mm512_loadu_ps(at));
            if offset {
                let factor = _mm512_mul_ps(_mm512_set1_ps(panel.offsets[row][run]), scales);
                sum = _mm512_fmadd_ps(factor, code_sums, sum);
            }
            _mm512_storeu_ps(at, sum);
        }
    }
}

/// Multiplications and additions of [`round`].
pub(crate) const ROUND_OPERATIONS: usize = 64 * 4 * 2 * 16 * 16 * 64;

/// Products of tiles that come from the first cache, for measuring.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) unsafe fn round() {
    let tiles = [const { Sums([[[0; TOKENS]; 16]; 4]) }; 1];
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
