//! GEMM: packs rows of weights into panels once and multiplies them with tiles of sixteen rows of
//! activations.
//!
//! ```text
//!                      activations [x_rows, width]                    y [x_rows, out]
//! weights              tile 0: 16 rows   tile 1   ...
//! panel 0: 32 rows     [32, 16] sums     [32, 16]                     a task: one panel, all tiles
//! panel 1: 32 rows     ...
//! ```
//!
//! The sums equal those of a small batch's kernels, number by number:
//! integers are summed within a super-block or a block, then floats in lane `chunk % 8` or
//! `block % 8`.
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

pub(super) mod amx;
mod microkernel;
mod pack;

use std::arch::{asm, x86_64::*};
use std::cell::RefCell;

use super::Product;
use super::plan::Kernel;
use super::small_batch::{self, SmallBatch};
use super::vector::{Avx2, Avx512, AvxVnni};
use crate::activations::{Activations, TILE_ROWS, Tiles};
use crate::lanes::LANES;
use crate::quant::avx2::{Encoding, SimdBlock, SimdSuperBlock, each};
use crate::quant::with_format;
use crate::thread_pool::Disjoint;
use crate::wide::transpose;
use crate::{Aligned, Cpu, Format};
use microkernel::{
    BlockSums, SuperSums, WordPanel, blocks_avx2, blocks_avx512, blocks_avxvnni, super_blocks_avx2,
    super_blocks_avx512, super_blocks_avxvnni, word_blocks_avx2,
};
use pack::{BlockPanel, ROWS, SUMS, SuperPanel, WeightRows};

/// A task's buffers.
#[derive(Default)]
struct Scratch {
    super_panel: Option<Box<SuperPanel>>,
    block_panels: Vec<BlockPanel>,
    words: Vec<WordPanel>,
    sums: Aligned<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Whether quants and activations are widened to words, for [`word_blocks_avx2`].
fn as_words(kernel: Kernel, format: Format) -> bool {
    kernel == Kernel::GemmAvx2 && matches!(format, Format::Q8_0 | Format::IQ4_NL)
}

/// As [`super::matmul`], for a product with at least one row.
pub(super) fn multiply(cpu: &Cpu, product: &Product, x: &mut Activations) {
    let &Product { w, out, row_ids, ref y, rule, .. } = product;
    let kernel = rule.kernel;
    let all = product.x_rows(x);
    let (x_rows, tail) = rule.split(all);
    if let Some(tail) = tail {
        x.arrange(small_batch::layout(tail, w.format));
    }
    x.make_tiles(cpu, row_ids, x_rows, as_words(kernel, w.format));
    let x = &*x;
    let (tiles, chunks) = (x.tiles(), x.chunks());
    let row_bytes = w.bytes.len() / out;
    cpu.threads.run(out.div_ceil(ROWS), &|task| {
        let first = task * ROWS;
        let bytes = &w.bytes[first * row_bytes..(first + ROWS).min(out) * row_bytes];
        let rows = WeightRows { bytes, row_bytes, chunks, kernel };
        let to = Outputs { y, x_rows, out, first, rows: rows.len() };
        SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: this CPU has AVX2 and the kernel's features.
            unsafe {
                let lanes = with_format!(w.format, F => {
                    float: unreachable!("floats are not packed"),
                    block: {
                        rows.blocks::<F>(tiles, scratch);
                        LANES
                    },
                    super_block: {
                        rows.super_blocks::<F>(tiles, scratch);
                        chunks.min(LANES)
                    },
                    sub_block: unreachable!("sub-blocks with float scales are not packed"),
                });
                to.prefetch(0);
                for tile in 0..tiles.count() {
                    to.prefetch(tile + 1);
                    let at = scratch.sums.as_ptr().add(tile * SUMS);
                    to.finish(tile, at, lanes, tiles.count() * SUMS);
                }
                if let Some(tail) = tail {
                    let p = SmallBatch {
                        w: bytes,
                        row_bytes,
                        weight_rows: rows.len(),
                        x,
                        row_ids,
                        before: x_rows,
                        rows: all - x_rows,
                        y,
                        column: first,
                        stride: out,
                    };
                    small_batch::multiply(tail, p, w.format, 0..rows.len());
                }
            }
        });
    });
}

impl WeightRows<'_> {
    /// Computes the sums of all tiles in `scratch`: `[lanes, tiles, ROWS, TILE_ROWS]`.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn super_blocks<F: SimdSuperBlock>(&self, tiles: &Tiles, scratch: &mut Scratch) {
        let lanes = self.chunks.min(LANES);
        let lane = tiles.count() * SUMS;
        // Old contents are never read: the first panel of a lane overwrites them.
        scratch.sums.at_least(lanes * lane);
        let panel = scratch.super_panel.get_or_insert_with(SuperPanel::zero);
        if self.len() < ROWS {
            **panel = *SuperPanel::zero();
        }
        let signed = matches!(F::ENCODING, Encoding::Signed);
        let zero_points = !matches!(F::ENCODING, Encoding::Unsigned(0));
        for index in 0..self.chunks {
            let sums = scratch.sums[index % LANES * lane..][..lane].as_mut_ptr();
            let to = SuperSums { zero_points, minima: F::MINIMA, fresh: index < LANES, sums };
            let x = tiles.super_blocks(index);
            let parts = x.split_at(x.len() - usize::from(tiles.ends_in_half()));
            match self.kernel {
                Kernel::GemmAvx2 => {
                    self.pack_super_blocks::<F, Avx2>(index, panel);
                    // Words can hold the sum of this many pairs of products of a quant and an
                    // activation.
                    match (F::SUB_BLOCKS_OF_16, i16::MAX as usize / (2 * 127 * F::MAX_QUANT as usize)) {
                        _ if signed => {
                            super_blocks_avx2::<8, 1, true>(
                                panel,
                                parts,
                                SuperSums { zero_points: false, ..to },
                            );
                        }
                        (true, 1) => super_blocks_avx2::<4, 1, false>(panel, parts, to),
                        (true, 2..4) => super_blocks_avx2::<4, 2, false>(panel, parts, to),
                        (true, _) => super_blocks_avx2::<4, 4, false>(panel, parts, to),
                        (false, ..4) => super_blocks_avx2::<8, 1, false>(panel, parts, to),
                        (false, 4..8) => super_blocks_avx2::<8, 4, false>(panel, parts, to),
                        (false, _) => super_blocks_avx2::<8, 8, false>(panel, parts, to),
                    }
                }
                Kernel::GemmAvxVnni => {
                    self.pack_super_blocks::<F, AvxVnni>(index, panel);
                    match F::SUB_BLOCKS_OF_16 {
                        true => super_blocks_avxvnni::<4>(panel, parts, to),
                        false => super_blocks_avxvnni::<8>(panel, parts, to),
                    }
                }
                Kernel::GemmAvx512 => {
                    self.pack_super_blocks::<F, Avx512>(index, panel);
                    match F::SUB_BLOCKS_OF_16 {
                        true => super_blocks_avx512::<4>(panel, x, to),
                        false => super_blocks_avx512::<8>(panel, x, to),
                    }
                }
                Kernel::GemmAmx => {
                    self.pack_high_low::<F>(index, panel);
                    match F::SUB_BLOCKS_OF_16 {
                        true => amx::super_blocks::<8>(panel, x, to),
                        false => amx::super_blocks::<4>(panel, x, to),
                    }
                }
                other => unreachable!("{} is no GEMM", other.name()),
            }
        }
    }

    /// Computes the sums of all tiles in `scratch`: `[LANES, tiles, ROWS, TILE_ROWS]`.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn blocks<F: SimdBlock>(&self, tiles: &Tiles, scratch: &mut Scratch) {
        let Scratch { block_panels: panels, words, sums, .. } = scratch;
        let len = LANES * self.chunks;
        panels.resize(len.max(panels.len()), BlockPanel::ZERO);
        if self.len() < ROWS {
            panels[..len].fill(BlockPanel::ZERO);
        }
        self.pack_blocks::<F>(&mut panels[..len]);
        sums.at_least(LANES * tiles.count() * SUMS);
        let zero_point = match F::ENCODING {
            Encoding::Unsigned(zero_point) => zero_point,
            Encoding::Signed => 128,
        };
        for (lane, panels) in panels[..len].chunks_exact(self.chunks).enumerate() {
            let x = tiles.blocks(lane);
            let parts = x.split_at(x.len() - if tiles.ends_in_half() { self.chunks } else { 0 });
            let sums = sums[lane * tiles.count() * SUMS..][..tiles.count() * SUMS].as_mut_ptr();
            let to = BlockSums { zero_point, offset: F::OFFSET, sums };
            match self.kernel {
                Kernel::GemmAvx2 => match F::ENCODING {
                    Encoding::Signed => word_blocks_avx2(panels, words, parts, tiles.words(lane), sums),
                    Encoding::Unsigned(_) if F::MAX_QUANT > 15 => blocks_avx2::<4>(panels, parts, to),
                    Encoding::Unsigned(_) => blocks_avx2::<8>(panels, parts, to),
                },
                Kernel::GemmAvxVnni => blocks_avxvnni(panels, parts, to),
                Kernel::GemmAvx512 => blocks_avx512(panels, x, to),
                Kernel::GemmAmx => amx::blocks(panels, x, to),
                other => unreachable!("{} is no GEMM", other.name()),
            }
        }
    }
}

/// The destination of a task's results.
struct Outputs<'a> {
    y: &'a Disjoint<'a, f32>,
    /// Rows of activations.
    x_rows: usize,
    /// Numbers per row of `y`.
    out: usize,
    /// The first column of this task.
    first: usize,
    /// Number of columns of this task.
    rows: usize,
}

impl Outputs<'_> {
    /// The index at which the results for a tile's rows of activations begin.
    #[inline(always)]
    fn places(&self, tile: usize) -> impl Iterator<Item = usize> {
        let start = (tile * TILE_ROWS).min(self.x_rows);
        let end = (start + TILE_ROWS).min(self.x_rows);
        (start..end).map(|x_row| x_row * self.out + self.first)
    }

    /// Prefetches the memory for a tile's results: rows of `y` are far apart, and a CPU has few
    /// pending stores.
    #[inline(always)]
    unsafe fn prefetch(&self, tile: usize) {
        for place in self.places(tile) {
            // SAFETY: no other task writes these columns.
            let to = unsafe { self.y.slice(place, self.rows) };
            for line in to.chunks(16) {
                asm!("prefetchw [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags, readonly));
            }
        }
    }

    /// Sums the lanes of a tile and writes each row's results.
    /// Lanes are `lane` apart; the lanes beyond `lanes` are zero.
    #[allow(clippy::needless_range_loop)] // Indices tell registers apart.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn finish(&self, tile: usize, sums: *const f32, lanes: usize, lane: usize) {
        static ZEROS: [f32; SUMS] = [0.0; SUMS];
        let mut from = [ZEROS.as_ptr(); LANES];
        for (i, from) in from[..lanes].iter_mut().enumerate() {
            *from = sums.add(i * lane);
        }
        let mut transposed = [[0f32; ROWS]; TILE_ROWS];
        let mut row = 0;
        while row < self.rows {
            for half in (0..self.places(tile).count()).step_by(8) {
                let at = row * TILE_ROWS + half;
                let t = transpose(each!(r => {
                    let s = each!(i => _mm256_loadu_ps(from[i].add(at + r * TILE_ROWS)));
                    let even = _mm256_add_ps(_mm256_add_ps(s[0], s[4]), _mm256_add_ps(s[2], s[6]));
                    let odd = _mm256_add_ps(_mm256_add_ps(s[1], s[5]), _mm256_add_ps(s[3], s[7]));
                    _mm256_add_ps(even, odd)
                }));
                for x_row in 0..8 {
                    _mm256_storeu_ps(transposed[half + x_row].as_mut_ptr().add(row), t[x_row]);
                }
            }
            row += 8;
        }
        for (place, numbers) in self.places(tile).zip(&transposed) {
            // SAFETY: no other task writes these columns.
            let to = unsafe { self.y.slice(place, self.rows) };
            match to.as_mut_array::<ROWS>() {
                Some(whole) => *whole = *numbers,
                None => to.copy_from_slice(&numbers[..self.rows]),
            }
        }
    }
}
