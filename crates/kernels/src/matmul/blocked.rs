//! Products with many rows of activations: a panel of some rows of weights is unpacked once and multiplied with blocks
//! of sixteen rows of activations, which lie side by side in the lanes of registers.
//!
//! The sums are those of the few rows' kernels, number by number: integers within a superblock or a run, then floats in
//! lane `panel % 8` or `run % 8`.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::cell::RefCell;

use super::tiles;
use super::vector::{Avx2, Avx512, AvxVnni, Vector};
use super::{Picks, Rows, fetch};
use crate::activations::{Activations, Blocks, RunBlock, SuperBlock, TOKENS};
use crate::isa::Level;
use crate::lanes::LANES;
use crate::quant::avx2::{Bias, RunBits, SuperBits, each};
use crate::quant::{MAX_BYTES, codebook, k, legacy};
use crate::threads::Disjoint;
use crate::{Cpu, Format};

/// The rows of weights in a panel.
pub(super) const ROWS: usize = 32;

/// The numbers of a panel that are summed in lanes, for a block: `[ROWS, TOKENS]`.
pub(super) const SUMS: usize = ROWS * TOKENS;

/// A superblock of each of [`ROWS`] rows.
#[repr(C, align(64))]
pub(super) struct SuperPanel {
    /// Without a sign, unless the format is a signed one of AVX2. AMX: see [`tiles`].
    pub codes: [[u8; 256]; ROWS],
    /// AMX only: the second plane.
    pub low: [[u8; 256]; ROWS],
    /// As [`Vector::scale_word`] makes them: of each sixteen codes, or of each 32.
    scales: [[i32; 16]; ROWS],
    /// What is added to codes times their scale, in pairs of words.
    lowered: [[i32; 8]; ROWS],
    /// Minima in pairs of words.
    pub minima: [[i32; 8]; ROWS],
    pub scale: [f32; ROWS],
    pub minimum: [f32; ROWS],
}

/// Eight runs of each of [`ROWS`] rows.
#[repr(C, align(64))]
#[derive(Clone)]
pub(super) struct RunPanel {
    /// As those of [`SuperPanel`]; with a sign for AMX.
    pub codes: [[u8; 256]; ROWS],
    pub scales: [[f32; LANES]; ROWS],
    pub offsets: [[f32; LANES]; ROWS],
}

impl RunPanel {
    const ZERO: RunPanel =
        RunPanel { codes: [[0; 256]; ROWS], scales: [[0.0; LANES]; ROWS], offsets: [[0.0; LANES]; ROWS] };
}

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
    let blocks = x.in_blocks(cpu, match picks {
        Picks::All(_) => None,
        Picks::Some(picks) => Some(picks),
    });
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
                    Format::IQ4_NL => return part.runs::<codebook::IQ4_NL>(blocks, scratch, picks.len(), write),
                    Format::MXFP4 => return part.runs::<codebook::MXFP4>(blocks, scratch, picks.len(), write),
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

/// Up to [`ROWS`] rows of weights.
struct Part<'a> {
    bytes: &'a [u8],
    row_bytes: usize,
    panels: usize,
    level: Level,
}

impl Part<'_> {
    fn rows(&self) -> usize {
        self.bytes.len() / self.row_bytes
    }

    /// Whether codes are multiplied without a sign.
    fn unsigned(&self) -> bool {
        matches!(self.level, Level::AvxVnni | Level::Avx512)
    }

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
                        (true, Bias::Unsigned(32)) => supers_avx2::<4, 2, false>(panel, x, true, F::MINIMA, sums),
                        (true, Bias::Unsigned(bias)) => {
                            supers_avx2::<4, 4, false>(panel, x, bias != 0, F::MINIMA, sums);
                        }
                        (false, _) if F::MOST > 15 => supers_avx2::<8, 4, false>(panel, x, false, F::MINIMA, sums),
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

    /// The bytes of a panel of each row. Those of the next panel are asked for.
    #[inline(always)]
    fn panel(&self, index: usize, bytes: usize) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.row_bytes).map(move |row| {
            let (start, end) = (index * bytes, row.len().min((index + 1) * bytes));
            fetch(row.as_ptr().wrapping_add(end), bytes);
            &row[start..end]
        })
    }

    #[inline(always)]
    unsafe fn fill_supers<F: SuperBits, V: Vector>(&self, index: usize, panel: &mut SuperPanel) {
        let bias = match F::BIAS {
            Bias::Unsigned(bias) => bias,
            Bias::Signed if self.unsigned() => 128,
            Bias::Signed => 0,
        };
        let step = if F::SIXTEENS { 1 } else { 2 };
        for (row, bytes) in self.panel(index, F::FORMAT.block_bytes()).enumerate() {
            let (scales, minima) = fill_super::<F>(bytes, row, panel);
            for (i, to) in panel.scales[row][..16 / step].iter_mut().enumerate() {
                *to = V::scale_word(i16::from(scales[i * step]));
            }
            if bias != 0 {
                let lowered = scales.map(|scale| bias * i16::from(scale));
                pairs(&lowered, step, &mut panel.lowered[row]);
            }
            if F::MINIMA {
                pairs(&minima.map(i16::from), step, &mut panel.minima[row]);
            }
            let flip = if matches!(F::BIAS, Bias::Signed) && self.unsigned() { 0x80 } else { 0 };
            store_codes(F::vectors(bytes.as_ptr()), flip, &mut panel.codes[row]);
        }
    }

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn fill_planes<F: SuperBits>(&self, index: usize, panel: &mut SuperPanel) {
        let bias = match F::BIAS {
            Bias::Unsigned(bias) => bias,
            Bias::Signed => 0,
        };
        let step = if F::SIXTEENS { 1 } else { 2 };
        for (row, bytes) in self.panel(index, F::FORMAT.block_bytes()).enumerate() {
            let (scales, minima) = fill_super::<F>(bytes, row, panel);
            if F::MINIMA {
                pairs(&minima.map(i16::from), step, &mut panel.minima[row]);
            }
            tiles::planes(F::vectors(bytes.as_ptr()), bias, &scales, &mut panel.codes[row], &mut panel.low[row]);
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

    #[inline(always)]
    unsafe fn fill_runs<F: RunBits>(&self, panels: &mut [RunPanel]) {
        let bytes_of = LANES * F::FORMAT.block_bytes();
        // From what the codec gives to what this instruction set wants.
        let (flip, less) = match F::BIAS {
            Bias::Signed if self.unsigned() => (0x80, 0),
            Bias::Unsigned(bias) if self.level == Level::Amx => (0, bias as u8),
            _ => (0, 0),
        };
        let mut padded = [0; MAX_BYTES];
        for (index, panel) in panels.iter_mut().enumerate() {
            for (row, bytes) in self.panel(index, bytes_of).enumerate() {
                let bytes = if bytes.len() < bytes_of {
                    padded[..bytes.len()].copy_from_slice(bytes);
                    &padded[..bytes_of]
                } else {
                    bytes
                };
                let (codes, scales, offsets) = F::eight(bytes);
                let codes = codes.map(|codes| lower(codes, less));
                store_codes(codes, flip, &mut panel.codes[row]);
                panel.scales[row] = scales;
                panel.offsets[row] = offsets;
            }
        }
    }
}

impl SuperPanel {
    fn zero() -> Box<SuperPanel> {
        Box::new(SuperPanel {
            codes: [[0; 256]; ROWS],
            low: [[0; 256]; ROWS],
            scales: [[0; 16]; ROWS],
            lowered: [[0; 8]; ROWS],
            minima: [[0; 8]; ROWS],
            scale: [0.0; ROWS],
            minimum: [0.0; ROWS],
        })
    }
}

#[inline(always)]
unsafe fn fill_super<F: SuperBits>(bytes: &[u8], row: usize, panel: &mut SuperPanel) -> ([i8; 16], [u8; 16]) {
    assert!(bytes.len() == F::FORMAT.block_bytes());
    let (scale, minimum) = F::factors(bytes.as_ptr());
    panel.scale[row] = scale;
    panel.minimum[row] = minimum;
    F::scales(bytes)
}

/// Every `step`th word, two in one.
#[inline(always)]
fn pairs(words: &[i16; 16], step: usize, out: &mut [i32; 8]) {
    for (i, out) in out[..8 / step].iter_mut().enumerate() {
        *out = i32::from(words[2 * i * step] as u16) | i32::from(words[(2 * i + 1) * step]) << 16;
    }
}

#[inline(always)]
unsafe fn lower(codes: std::arch::x86_64::__m256i, less: u8) -> std::arch::x86_64::__m256i {
    use std::arch::x86_64::*;
    _mm256_sub_epi8(codes, _mm256_set1_epi8(less as i8))
}

#[inline(always)]
unsafe fn store_codes(codes: [std::arch::x86_64::__m256i; 8], flip: u8, out: &mut [u8; 256]) {
    use std::arch::x86_64::*;
    for (codes, out) in codes.into_iter().zip(out.as_chunks_mut::<32>().0) {
        _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_xor_si256(codes, _mm256_set1_epi8(flip as i8)));
    }
}

/// Adds the products of a panel with all blocks to `sums: [blocks, ROWS, TOKENS]`. N registers hold a block's lanes, R
/// rows of weights are worked through side by side; a scale holds for QUADS * 4 codes, and partial sums for HEAD * 4.
#[allow(clippy::needless_range_loop)] // See `products`.
#[inline(always)]
unsafe fn supers<V: Vector, const R: usize, const N: usize, const QUADS: usize, const HEAD: usize, const SIGNED: bool>(
    panel: &SuperPanel,
    blocks: &[SuperBlock],
    lowered: bool,
    minima: bool,
    sums: *mut f32,
) {
    let width = TOKENS / N;
    for (index, block) in blocks.iter().enumerate() {
        let x = block.codes.as_ptr().cast::<i32>();
        let code_sums = if QUADS == 4 { block.sums.as_ptr().cast() } else { block.wide_sums.as_ptr().cast::<i32>() };
        let mut first = 0;
        while first < ROWS {
            let codes = panel.codes.as_ptr().add(first).cast::<i32>();
            let scale_words = panel.scales.as_ptr().cast::<i32>();
            let mut totals = [[V::zero(); N]; R];
            for scale in 0..64 / QUADS {
                for part in 0..QUADS / HEAD {
                    let start = scale * QUADS + part * HEAD;
                    let partial = products::<V, R, N, HEAD, SIGNED>(codes.add(start), x.add(start * TOKENS));
                    for r in 0..R {
                        let scale = V::spread(*scale_words.add((first + r) * 16 + scale));
                        for n in 0..N {
                            totals[r][n] = V::add(totals[r][n], V::scaled(partial[r][n], scale));
                        }
                    }
                }
            }
            for r in 0..R {
                let row = first + r;
                for n in 0..N {
                    let code_sums = code_sums.add(n * width);
                    let mut total = totals[r][n];
                    if lowered {
                        let words = panel.lowered.as_ptr().add(row).cast();
                        total = V::sub(total, of_sums::<V, QUADS>(words, code_sums));
                    }
                    let scales = V::load_floats(block.scales.as_ptr().add(n * width));
                    let at = sums.add(index * SUMS + row * TOKENS + n * width);
                    let factor = V::mul(V::spread_float(*panel.scale.as_ptr().add(row)), scales);
                    let mut sum = V::mul_add(factor, V::float(total), V::load_floats(at));
                    if minima {
                        let words = panel.minima.as_ptr().add(row).cast();
                        let total = of_sums::<V, QUADS>(words, code_sums);
                        let factor = V::mul(V::spread_float(-*panel.minimum.as_ptr().add(row)), scales);
                        sum = V::mul_add(factor, V::float(total), sum);
                    }
                    V::store_floats(at, sum);
                }
            }
            first += R;
        }
    }
}

/// The sums of codes times a word each.
#[inline(always)]
unsafe fn of_sums<V: Vector, const QUADS: usize>(words: *const i32, code_sums: *const i32) -> V::I {
    let mut total = V::zero();
    for pair in 0..32 / QUADS {
        total = V::add_pairs(total, V::load(code_sums.add(pair * TOKENS)), V::spread(*words.add(pair)));
    }
    total
}

/// The partial sums of HEAD * 4 codes of R rows of weights, which are 64 words apart, with the N registers of a block.
// Indices, because what iterators do to arrays of registers isn't always unrolled.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
unsafe fn products<V: Vector, const R: usize, const N: usize, const HEAD: usize, const SIGNED: bool>(
    codes: *const i32,
    x: *const i32,
) -> [[V::I; N]; R] {
    let mut partial = [[V::zero(); N]; R];
    for quad in 0..HEAD {
        let mut xs = [V::zero(); N];
        for n in 0..N {
            xs[n] = V::load(x.add(quad * TOKENS + n * (TOKENS / N)));
        }
        for r in 0..R {
            let w = V::spread(codes.add(r * 64 + quad).read_unaligned());
            for n in 0..N {
                partial[r][n] = V::add_quads::<SIGNED>(partial[r][n], w, xs[n]);
            }
        }
    }
    partial
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn supers_avx2<const QUADS: usize, const HEAD: usize, const SIGNED: bool>(
    panel: &SuperPanel,
    blocks: &[SuperBlock],
    lowered: bool,
    minima: bool,
    sums: *mut f32,
) {
    supers::<Avx2, 2, 2, QUADS, HEAD, SIGNED>(panel, blocks, lowered, minima, sums);
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
unsafe fn supers_avxvnni<const QUADS: usize>(
    panel: &SuperPanel,
    blocks: &[SuperBlock],
    lowered: bool,
    minima: bool,
    sums: *mut f32,
) {
    supers::<AvxVnni, 2, 2, QUADS, QUADS, false>(panel, blocks, lowered, minima, sums);
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn supers_avx512<const QUADS: usize>(
    panel: &SuperPanel,
    blocks: &[SuperBlock],
    lowered: bool,
    minima: bool,
    sums: *mut f32,
) {
    supers::<Avx512, 8, 1, QUADS, QUADS, false>(panel, blocks, lowered, minima, sums);
}

/// Adds the products of a panel with a block to `sums: [LANES, ROWS, TOKENS]`; `bias` was added to codes.
#[allow(clippy::needless_range_loop)] // See `products`.
#[inline(always)]
unsafe fn runs<V: Vector, const R: usize, const N: usize, const HEAD: usize, const SIGNED: bool>(
    panel: &RunPanel,
    block: &RunBlock,
    bias: i16,
    offset: bool,
    sums: *mut f32,
) {
    let width = TOKENS / N;
    let x = block.codes.as_ptr().cast::<i32>();
    // A sum of a run's codes is within a word's range; the word above it counts nothing.
    let less = V::spread(i32::from(-bias as u16));
    let mut first = 0;
    while first < ROWS {
        let codes = panel.codes.as_ptr().add(first).cast::<i32>();
        for run in 0..LANES {
            let mut totals = [[V::zero(); N]; R];
            for part in 0..8 / HEAD {
                let start = run * 8 + part * HEAD;
                let partial = products::<V, R, N, HEAD, SIGNED>(codes.add(start), x.add(start * TOKENS));
                for r in 0..R {
                    for n in 0..N {
                        totals[r][n] = V::add(totals[r][n], V::whole(partial[r][n]));
                    }
                }
            }
            for n in 0..N {
                let scales = V::load_floats(block.scales.as_ptr().cast::<f32>().add(run * TOKENS + n * width));
                let code_sums = V::load(block.sums.as_ptr().cast::<i32>().add(run * TOKENS + n * width));
                for r in 0..R {
                    let row = first + r;
                    let at = sums.add(run * SUMS + row * TOKENS + n * width);
                    let total = if bias == 0 { totals[r][n] } else { V::add_pairs(totals[r][n], code_sums, less) };
                    let scale = *panel.scales.as_ptr().add(row).cast::<f32>().add(run);
                    let factor = V::mul(V::spread_float(scale), scales);
                    let mut sum = V::mul_add(factor, V::float(total), V::load_floats(at));
                    if offset {
                        let offset = *panel.offsets.as_ptr().add(row).cast::<f32>().add(run);
                        sum = V::mul_add(V::mul(V::spread_float(offset), scales), V::float(code_sums), sum);
                    }
                    V::store_floats(at, sum);
                }
            }
        }
        first += R;
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn runs_avx2<const HEAD: usize, const SIGNED: bool>(
    panel: &RunPanel,
    block: &RunBlock,
    bias: i16,
    offset: bool,
    sums: *mut f32,
) {
    runs::<Avx2, 2, 2, HEAD, SIGNED>(panel, block, bias, offset, sums);
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
unsafe fn runs_avxvnni(panel: &RunPanel, block: &RunBlock, bias: i16, offset: bool, sums: *mut f32) {
    runs::<AvxVnni, 2, 2, 8, false>(panel, block, bias, offset, sums);
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn runs_avx512(panel: &RunPanel, block: &RunBlock, bias: i16, offset: bool, sums: *mut f32) {
    runs::<Avx512, 8, 1, 8, false>(panel, block, bias, offset, sums);
}

/// Adds up the lanes of a block and gives each token's numbers, one a row. Lanes that are `lane` apart, of which there are
/// `lanes`; the others are zero.
#[allow(clippy::needless_range_loop)] // See `products`.
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
