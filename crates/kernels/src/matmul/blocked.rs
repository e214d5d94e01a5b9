//! Products with many rows of activations: a panel of some rows of weights is unpacked once and multiplied with blocks
//! of sixteen rows of activations, which lie side by side in the lanes of registers.
//!
//! The sums are those of the few rows' kernels, number by number: integers within a superblock or a run, then floats in
//! lane `panel % 8` or `run % 8`.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::cell::RefCell;

use super::panel::{Part, ROWS, RunPanel, SUMS, SuperPanel};
use super::side_by_side::{runs_avx2, runs_avx512, runs_avxvnni, supers_avx2, supers_avx512, supers_avxvnni};
use super::vector::{Avx2, Avx512, AvxVnni};
use super::{Picks, Rows, tiles};
use crate::activations::{Activations, Blocks, TOKENS};
use crate::isa::Level;
use crate::lanes::LANES;
use crate::quant::avx2::{Bias, RunBits, SuperBits, each};
use crate::quant::{codebook, k, legacy};
use crate::threads::Disjoint;
use crate::{Cpu, Format};

/// What a task works with.
#[derive(Default)]
struct Scratch {
    supers: Option<Box<SuperPanel>>,
    runs: Vec<RunPanel>,
    sums: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Whether products of `rows` rows of activations are worth unpacking weights for.
pub(super) fn pays(level: Level, format: Format, rows: usize) -> bool {
    level != Level::Scalar && format.block_len() > 1 && rows >= 8
}

/// As [`super::multiply`].
pub(super) fn multiply(cpu: &Cpu, w: Rows, x: &mut Activations, picks: Picks, y: &Disjoint<f32>) {
    let panels = x.panels();
    let blocks = x.in_blocks(
        cpu,
        match picks {
            Picks::All(_) => None,
            Picks::Some(picks) => Some(picks),
        },
    );
    let out = w.rows();
    let row_bytes = w.bytes.len() / out;
    let level = cpu.isa.level();
    cpu.threads.run(out.div_ceil(ROWS), &|task| {
        let first = task * ROWS;
        let part = Part {
            bytes: &w.bytes[first * row_bytes..(first + ROWS).min(out) * row_bytes],
            row_bytes,
            panels,
            level,
        };
        SCRATCH.with_borrow_mut(|scratch| {
            let write = |row: usize, numbers: &[f32]| {
                // SAFETY: no other task writes these columns.
                unsafe { y.slice(picks.get(row).1 * out + first, numbers.len()) }.copy_from_slice(numbers);
            };
            // SAFETY: this CPU has AVX2 and what `level` says.
            unsafe {
                match w.format {
                    Format::Q2_K => part.supers::<k::Q2_K>(blocks, scratch),
                    Format::Q3_K => part.supers::<k::Q3_K>(blocks, scratch),
                    Format::Q4_K => part.supers::<k::Q4_K>(blocks, scratch),
                    Format::Q5_K => part.supers::<k::Q5_K>(blocks, scratch),
                    Format::Q6_K => part.supers::<k::Q6_K>(blocks, scratch),
                    Format::IQ4_XS => part.supers::<codebook::IQ4_XS>(blocks, scratch),
                    Format::Q4_0 => return part.runs::<legacy::Q4_0>(blocks, scratch, picks.len(), write),
                    Format::Q4_1 => return part.runs::<legacy::Q4_1>(blocks, scratch, picks.len(), write),
                    Format::Q5_0 => return part.runs::<legacy::Q5_0>(blocks, scratch, picks.len(), write),
                    Format::Q5_1 => return part.runs::<legacy::Q5_1>(blocks, scratch, picks.len(), write),
                    Format::Q8_0 => return part.runs::<legacy::Q8_0>(blocks, scratch, picks.len(), write),
                    Format::IQ4_NL => {
                        return part.runs::<codebook::IQ4_NL>(blocks, scratch, picks.len(), write);
                    }
                    Format::MXFP4 => {
                        return part.runs::<codebook::MXFP4>(blocks, scratch, picks.len(), write);
                    }
                    Format::F32 | Format::F16 | Format::BF16 => unreachable!("floats have no blocks"),
                }
                let lanes = panels.min(LANES);
                for block in 0..blocks.count() {
                    let tokens = TOKENS.min(picks.len() - block * TOKENS);
                    let at = scratch.sums.as_ptr().add(block * SUMS);
                    finish(at, lanes, blocks.count() * SUMS, part.rows(), tokens, |token, numbers| {
                        write(block * TOKENS + token, numbers);
                    });
                }
            }
        });
    });
}

impl Part<'_> {
    /// The sums of all blocks in `scratch`: `[lanes, blocks, ROWS, TOKENS]`.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn supers<F: SuperBits>(&self, blocks: &Blocks, scratch: &mut Scratch) {
        let lanes = self.panels.min(LANES);
        let lane = blocks.count() * SUMS;
        scratch.sums.clear();
        scratch.sums.resize(lanes * lane, 0.0);
        let panel = scratch.supers.get_or_insert_with(SuperPanel::zero);
        if self.rows() < ROWS {
            **panel = *SuperPanel::zero();
        }
        for index in 0..self.panels {
            let sums = scratch.sums[index % LANES * lane..][..lane].as_mut_ptr();
            let x = blocks.supers(index);
            match self.level {
                Level::Scalar => {}
                Level::Avx2 => {
                    self.fill_supers::<F, Avx2>(index, panel);
                    match (F::SIXTEENS, F::BIAS) {
                        (_, Bias::Signed) => supers_avx2::<8, 1, true>(panel, x, false, F::MINIMA, sums),
                        (true, Bias::Unsigned(32)) => {
                            supers_avx2::<4, 2, false>(panel, x, true, F::MINIMA, sums);
                        }
                        (true, Bias::Unsigned(bias)) => {
                            supers_avx2::<4, 4, false>(panel, x, bias != 0, F::MINIMA, sums);
                        }
                        (false, _) if F::MOST > 15 => {
                            supers_avx2::<8, 4, false>(panel, x, false, F::MINIMA, sums);
                        }
                        (false, _) => supers_avx2::<8, 8, false>(panel, x, false, F::MINIMA, sums),
                    }
                }
                Level::AvxVnni => {
                    self.fill_supers::<F, AvxVnni>(index, panel);
                    let lowered = !matches!(F::BIAS, Bias::Unsigned(0));
                    match F::SIXTEENS {
                        true => supers_avxvnni::<4>(panel, x, lowered, F::MINIMA, sums),
                        false => supers_avxvnni::<8>(panel, x, lowered, F::MINIMA, sums),
                    }
                }
                Level::Avx512 => {
                    self.fill_supers::<F, Avx512>(index, panel);
                    let lowered = !matches!(F::BIAS, Bias::Unsigned(0));
                    match F::SIXTEENS {
                        true => supers_avx512::<4>(panel, x, lowered, F::MINIMA, sums),
                        false => supers_avx512::<8>(panel, x, lowered, F::MINIMA, sums),
                    }
                }
                Level::Amx => {
                    self.fill_planes::<F>(index, panel);
                    match F::SIXTEENS {
                        true => tiles::supers::<8>(panel, x, F::MINIMA, sums),
                        false => tiles::supers::<4>(panel, x, F::MINIMA, sums),
                    }
                }
            }
        }
    }

    /// Block after block, so that the sums of all eight lanes stay in the first cache.
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn runs<F: RunBits>(
        &self,
        blocks: &Blocks,
        scratch: &mut Scratch,
        count: usize,
        write: impl Fn(usize, &[f32]),
    ) {
        let Scratch { runs: panels, sums, .. } = scratch;
        panels.resize(self.panels.max(panels.len()), RunPanel::ZERO);
        if self.rows() < ROWS {
            panels[..self.panels].fill(RunPanel::ZERO);
        }
        self.fill_runs::<F>(&mut panels[..self.panels]);
        sums.resize((LANES * SUMS).max(sums.len()), 0.0);
        let bias = match F::BIAS {
            Bias::Unsigned(bias) => bias,
            Bias::Signed => 128,
        };
        for block in 0..blocks.count() {
            let sums = &mut sums[..LANES * SUMS];
            sums.fill(0.0);
            let sums = sums.as_mut_ptr();
            for (index, panel) in panels[..self.panels].iter().enumerate() {
                let x = &blocks.runs(index)[block];
                match self.level {
                    Level::Scalar => {}
                    Level::Avx2 => match F::BIAS {
                        Bias::Signed if F::MOST > 16 => runs_avx2::<1, true>(panel, x, 0, F::OFFSET, sums),
                        Bias::Signed => runs_avx2::<8, true>(panel, x, 0, F::OFFSET, sums),
                        _ if F::MOST > 15 => runs_avx2::<4, false>(panel, x, bias, F::OFFSET, sums),
                        _ => runs_avx2::<8, false>(panel, x, bias, F::OFFSET, sums),
                    },
                    Level::AvxVnni => runs_avxvnni(panel, x, bias, F::OFFSET, sums),
                    Level::Avx512 => runs_avx512(panel, x, bias, F::OFFSET, sums),
                    Level::Amx => tiles::runs(panel, x, F::OFFSET, sums),
                }
            }
            let tokens = TOKENS.min(count - block * TOKENS);
            finish(sums, LANES, SUMS, self.rows(), tokens, |token, numbers| {
                write(block * TOKENS + token, numbers);
            });
        }
    }
}

/// Adds up the lanes of a block and gives each token's numbers, one a row. Lanes that are `lane` apart, of which there are
/// `lanes`; the others are zero.
#[allow(clippy::needless_range_loop)] // Indices tell registers apart.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn finish(
    sums: *const f32,
    lanes: usize,
    lane: usize,
    rows: usize,
    tokens: usize,
    write: impl Fn(usize, &[f32]),
) {
    use std::arch::x86_64::*;
    const ZEROS: [f32; SUMS] = [0.0; SUMS];
    let mut from = [ZEROS.as_ptr(); LANES];
    for (i, from) in from[..lanes].iter_mut().enumerate() {
        *from = sums.add(i * lane);
    }
    let mut turned = [[0f32; ROWS]; TOKENS];
    let mut row = 0;
    while row < rows {
        for half in [0, 8] {
            let at = row * TOKENS + half;
            let t = turn(each!(r => {
                let s = each!(i => _mm256_loadu_ps(from[i].add(at + r * TOKENS)));
                let even = _mm256_add_ps(_mm256_add_ps(s[0], s[4]), _mm256_add_ps(s[2], s[6]));
                let odd = _mm256_add_ps(_mm256_add_ps(s[1], s[5]), _mm256_add_ps(s[3], s[7]));
                _mm256_add_ps(even, odd)
            }));
            for token in 0..8 {
                _mm256_storeu_ps(turned[half + token].as_mut_ptr().add(row), t[token]);
            }
        }
        row += 8;
    }
    for (token, numbers) in turned[..tokens].iter().enumerate() {
        write(token, &numbers[..rows]);
    }
}

/// Rows become columns.
#[inline(always)]
unsafe fn turn(r: [std::arch::x86_64::__m256; 8]) -> [std::arch::x86_64::__m256; 8] {
    use std::arch::x86_64::*;
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
