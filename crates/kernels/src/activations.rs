//! Activations in the form that weights multiply with.
#![allow(unsafe_code)]

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod blocks;

use crate::elementwise::over_rows;
use crate::quant::{FLOATS, PANEL, RUN};
use crate::threads::Disjoint;
use crate::wide::{LANES, Wide, for_each_wide};
use crate::{Aligned, Cpu, Format};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use blocks::{Blocks, TOKENS};
#[cfg(target_arch = "x86_64")]
pub(crate) use blocks::{RunBlock, SuperBlock, WordBlock};

/// Rows of activations in the form that a weight format's dot product wants, as in llama.cpp: f32
/// for float weights; 8-bit codes in runs of 32 with an f32 scale each for formats of less than
/// 256; 8-bit codes in runs of 256 with an f32 scale each for formats of 256.
/// Rows are padded with zeros to whole panels.
/// Buffers are reused.
#[derive(Debug, Default)]
pub struct Activations {
    form: Form,
    rows: usize,
    width: usize,
    /// Panels in a row.
    panels: usize,
    /// `[rows, panels * 64]`, for [`Form::Floats`].
    floats: Aligned<f32>,
    /// `[rows, panels * 256]`: within -127..=127.
    codes: Aligned<i8>,
    /// `[rows, panels * 16]`: the sums of sixteen codes each.
    sums: Aligned<i16>,
    /// `[rows, panels * 8]` or `[rows, panels]`.
    scales: Aligned<f32>,
    /// See [`Activations::interleaved`].
    #[cfg(target_arch = "x86_64")]
    interleaved: Aligned<i8>,
    /// Whether somebody asked for it yet.
    #[cfg(target_arch = "x86_64")]
    is_interleaved: bool,
    /// See [`Activations::run_sums`].
    #[cfg(target_arch = "x86_64")]
    run_sums: Aligned<i16>,
    /// Whether somebody asked for them yet.
    #[cfg(target_arch = "x86_64")]
    has_run_sums: bool,
    /// See [`Activations::eights`].
    #[cfg(target_arch = "x86_64")]
    eights: Aligned<i16>,
    /// Whether somebody asked for it yet.
    #[cfg(target_arch = "x86_64")]
    has_eights: bool,
    /// The same for products with many rows, made when one asks for it.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    blocks: Blocks,
}

/// The forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Floats,
    /// Runs of 32.
    Runs,
    /// Runs of 256.
    Supers,
}

/// An order of the codes of a superblock in which a register takes the nibbles of superblocks, and
/// two registers after each other have the same scales.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) enum Interleaved {
    /// For registers of 32 bytes, of each four runs the first and the third, and then the second
    /// and the fourth: eight codes of one, eight of the other; of both halves of runs those that
    /// come first, then those that are left.
    Eights,
    /// For registers of 64 bytes: the first halves of runs 0, 2, 4 and 6, what is left of them, and
    /// the same of the others.
    Whole,
}

#[cfg(target_arch = "x86_64")]
impl Interleaved {
    /// Where the eights are in their own order.
    const fn eights(self) -> [usize; 32] {
        let mut eights = [0; 32];
        let mut i = 0;
        while i < 32 {
            eights[i] = match self {
                // Of four runs two, of these a register, of each half of a run both.
                Interleaved::Eights => i / 16 * 16 + i / 8 % 2 * 4 + i / 4 % 2 + i / 2 % 2 * 2 + i % 2 * 8,
                Interleaved::Whole => i / 8 * 2 + i / 2 % 4 * 8 + i % 2,
            };
            i += 1;
        }
        eights
    }
}

/// The numbers of [`Activations::run_sums`] for a panel.
#[cfg(target_arch = "x86_64")]
pub(crate) const RUN_SUMS: usize = 32;

/// The numbers of [`Activations::eights`] for a panel.
#[cfg(target_arch = "x86_64")]
pub(crate) const EIGHTS: usize = 64;

impl Form {
    fn of(format: Format) -> Form {
        match format.block_len() {
            1 => Form::Floats,
            PANEL => Form::Supers,
            _ => Form::Runs,
        }
    }
}

impl Activations {
    /// Takes the rows of `x`, each `width` numbers, for weights of `format`.
    ///
    /// A run's scale is its largest magnitude / 127; codes are rounded to the nearest, ties to
    /// even.
    /// A run below 1e-30 counts as zeros.
    /// A run with a NaN or an infinity gets such a scale, so that results show it.
    ///
    /// # Panics
    /// Unless `x` is whole rows and `width` whole blocks of the format.
    pub fn prepare(&mut self, cpu: &Cpu, format: Format, x: &[f32], width: usize) {
        assert!(width > 0 && x.len().is_multiple_of(width), "{} activations in rows of {width}", x.len());
        assert!(width.is_multiple_of(format.block_len()), "rows of {width} numbers in {}", format.name());
        #[cfg(target_arch = "x86_64")]
        {
            self.is_interleaved = false;
            self.has_run_sums = false;
            self.has_eights = false;
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        self.blocks.forget();
        self.form = Form::of(format);
        self.rows = x.len() / width;
        self.width = width;
        if self.form == Form::Floats {
            self.panels = width.div_ceil(FLOATS);
            let padded = self.panels * FLOATS;
            let floats = self.floats.at_least(self.rows * padded);
            for (to, from) in floats.chunks_exact_mut(padded).zip(x.chunks_exact(width)) {
                to[..width].copy_from_slice(from);
                to[width..].fill(0.0);
            }
            return;
        }
        self.panels = width.div_ceil(PANEL);
        let run = if self.form == Form::Supers { PANEL } else { RUN };
        let (padded, sums, scales) =
            (self.panels * PANEL, self.panels * PANEL / 16, self.panels * PANEL / run);
        let all = (
            Disjoint::new(self.codes.at_least(self.rows * padded)),
            Disjoint::new(self.sums.at_least(self.rows * sums)),
            Disjoint::new(self.scales.at_least(self.rows * scales)),
        );
        over_rows(cpu, self.rows, width, &|rows| {
            for row in rows {
                let x = &x[row * width..][..width];
                // SAFETY: no two tasks have the same row.
                let (codes, sums, scales) = unsafe {
                    (
                        all.0.slice(row * padded, padded),
                        all.1.slice(row * sums, sums),
                        all.2.slice(row * scales, scales),
                    )
                };
                quantize(cpu.isa, x, run, codes, sums, scales);
            }
        });
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Whether this is the form that weights of `format` multiply with.
    pub fn suits(&self, format: Format) -> bool {
        self.form == Form::of(format)
    }

    /// Makes what [`Activations::blocks`] gives: of the first `rows` rows, or of those that are
    /// named, in that order; `as_words` says whether the codes of runs are wanted as words too.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn in_blocks(&mut self, cpu: &Cpu, named: Option<&[u32]>, rows: usize, as_words: bool) {
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.take(cpu, self, named, rows);
        if as_words {
            blocks.widen(cpu);
        }
        self.blocks = blocks;
    }

    /// Rows in blocks of sixteen.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Makes what [`Activations::interleaved`] gives.
    /// On a CPU it is always the same order.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn interleave(&mut self, order: Interleaved) {
        if std::mem::replace(&mut self.is_interleaved, true) {
            return;
        }
        let panels = self.rows * self.panels;
        let interleaved = self.interleaved.at_least(panels * PANEL).as_chunks_mut::<PANEL>().0;
        let eights = order.eights();
        for (to, from) in interleaved.iter_mut().zip(self.codes.as_chunks::<PANEL>().0) {
            let from = from.as_chunks::<8>().0;
            for (to, at) in to.as_chunks_mut::<8>().0.iter_mut().zip(eights) {
                *to = from[at];
            }
        }
    }

    /// Makes what [`Activations::run_sums`] gives.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn sum_runs(&mut self) {
        if std::mem::replace(&mut self.has_run_sums, true) {
            return;
        }
        let panels = self.rows * self.panels;
        let run_sums = self.run_sums.at_least(panels * RUN_SUMS).as_chunks_mut::<8>().0;
        for (to, from) in run_sums.iter_mut().zip(self.sums.as_chunks::<4>().0) {
            let two = [from[0] + from[1], from[2] + from[3]];
            *to = [two[0], two[1], two[0], two[1], two[0], two[1], two[0], two[1]];
        }
    }

    /// Makes what [`Activations::eights`] gives.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn sum_eights(&mut self) {
        if std::mem::replace(&mut self.has_eights, true) {
            return;
        }
        let eights = self.eights.at_least(self.rows * self.panels * EIGHTS).as_chunks_mut::<2>().0;
        for (to, from) in eights.iter_mut().zip(self.codes.as_chunks::<8>().0) {
            *to = [-32 * from.iter().map(|&code| i16::from(code)).sum::<i16>(); 2];
        }
    }

    /// The codes of a row, after [`Activations::interleave`].
    ///
    /// # Panics
    /// If there is no such row, or nobody asked for the order since the rows were taken.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn interleaved(&self, row: usize) -> &[i8] {
        assert!(self.is_interleaved && row < self.rows, "row {row} of {} is not interleaved", self.rows);
        &self.interleaved[row * self.panels * PANEL..][..self.panels * PANEL]
    }

    /// The sums of runs of a row, after [`Activations::sum_runs`]: those of two, four times, and of
    /// the next two.
    ///
    /// # Panics
    /// As [`Activations::interleaved`].
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn run_sums(&self, row: usize) -> &[i16] {
        assert!(self.has_run_sums && row < self.rows, "row {row} of {} has no sums of runs", self.rows);
        &self.run_sums[row * self.panels * RUN_SUMS..][..self.panels * RUN_SUMS]
    }

    /// Of each eight codes of a row, after [`Activations::sum_eights`], -32 times their sum, twice:
    /// where sums of products with codes that are 32 too large begin.
    ///
    /// # Panics
    /// If there is no such row, or nobody asked for them since the rows were taken.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn eights(&self, row: usize) -> &[i16] {
        assert!(self.has_eights && row < self.rows, "row {row} of {} has no eights", self.rows);
        &self.eights[row * self.panels * EIGHTS..][..self.panels * EIGHTS]
    }

    /// The number of panels in a row.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn panels(&self) -> usize {
        self.panels
    }

    /// All codes of a row, their sums of 16, and their scales of 256.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn all_supers(&self, row: usize) -> (&[i8], &[i16], &[f32]) {
        let (start, panels) = (row * self.panels, self.panels);
        let codes = &self.codes[start * PANEL..][..panels * PANEL];
        (codes, &self.sums[start * 16..][..panels * 16], &self.scales[start..][..panels])
    }

    /// All codes of a row, their sums of 16, and their scales of 32.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn all_runs(&self, row: usize) -> (&[i8], &[i16], &[f32]) {
        let (codes, sums, _) = self.all_supers(row);
        (codes, sums, &self.scales[row * self.panels * 8..][..self.panels * 8])
    }

    /// Whether codes have a scale for each 256.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn has_supers(&self) -> bool {
        self.form == Form::Supers
    }

    /// A panel of 64 floats.
    #[inline(always)]
    pub(crate) fn floats(&self, row: usize, panel: usize) -> &[f32] {
        &self.floats[(row * self.panels + panel) * FLOATS..][..FLOATS]
    }

    /// A panel of 256 codes, its sums of 16, and its scales of 32.
    #[inline(always)]
    pub(crate) fn runs(&self, row: usize, panel: usize) -> (&[i8], &[i16], &[f32]) {
        let panel = row * self.panels + panel;
        (&self.codes[panel * 256..][..256], &self.sums[panel * 16..][..16], &self.scales[panel * 8..][..8])
    }

    /// A panel of 256 codes, its sums of 16, and its scale.
    #[inline(always)]
    pub(crate) fn supers(&self, row: usize, panel: usize) -> (&[i8], &[i16], f32) {
        let panel = row * self.panels + panel;
        (&self.codes[panel * 256..][..256], &self.sums[panel * 16..][..16], self.scales[panel])
    }
}

for_each_wide! {
    /// Quantizes a row in runs of `run`; what lies beyond it becomes zero.
    fn quantize<W>(x: &[f32], run: usize, codes: &mut [i8], sums: &mut [i16], scales: &mut [f32]) {
        codes[x.len()..].fill(0);
        scales.fill(0.0);
        // SAFETY: this is compiled for the instruction set of `W`.
        unsafe {
            if run == 32 {
                quantize_runs::<W, 32>(x, codes, scales);
            } else {
                quantize_runs::<W, 256>(x, codes, scales);
            }
        }
        for (sum, codes) in sums.iter_mut().zip(codes.as_chunks::<16>().0) {
            *sum = codes.iter().map(|&code| i16::from(code)).sum();
        }
    }
}

/// 1.5 * 2^23: what is added to it is rounded to an integer, ties to even, whose lower bits are the
/// last of the sum's.
const ROUND: f32 = (3 << 22) as f32;

/// # Safety
/// The CPU has the instruction set of `W`.
#[inline(always)]
unsafe fn quantize_runs<W: Wide, const RUN: usize>(x: &[f32], codes: &mut [i8], scales: &mut [f32]) {
    for ((x, codes), scale) in x.as_chunks::<RUN>().0.iter().zip(codes.as_chunks_mut::<RUN>().0).zip(scales) {
        // As integers, magnitudes are in the same order, and NaN is the largest.
        let largest = f32::from_bits(x.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff)));
        let tiny = largest < 1e-30;
        *scale = if tiny { 0.0 } else { largest / 127.0 };
        let inverse = if tiny { 0.0 } else { 127.0 / largest };
        for (x, codes) in x.as_chunks::<LANES>().0.iter().zip(codes.as_chunks_mut::<LANES>().0) {
            // SAFETY: the caller's; there are sixteen of each.
            unsafe {
                let scaled = W::load(x.as_ptr()).mul(W::splat(inverse));
                scaled.add(W::splat(ROUND)).store_bytes(codes.as_mut_ptr());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Isa, Threads};

    impl Activations {
        /// The numbers that a row stands for.
        pub(crate) fn numbers(&self, row: usize) -> Vec<f64> {
            let run = match self.form {
                Form::Floats => {
                    return self.floats[row * self.panels * FLOATS..][..self.width]
                        .iter()
                        .map(|&x| f64::from(x))
                        .collect();
                }
                Form::Runs => 32,
                Form::Supers => 256,
            };
            let codes = &self.codes[row * self.panels * PANEL..][..self.width];
            let scales = &self.scales[row * self.panels * PANEL / run..];
            codes
                .chunks(run)
                .zip(scales)
                .flat_map(|(codes, &scale)| codes.iter().map(move |&code| f64::from(code) * f64::from(scale)))
                .collect()
        }
    }

    fn prepared(isa: Isa, format: Format, x: &[f32], width: usize) -> Activations {
        let mut activations = Activations::default();
        activations.prepare(&Cpu::new(isa, Threads::new(2)), format, x, width);
        activations
    }

    proptest! {
        #[test]
        fn codes_are_the_nearest(x in proptest::collection::vec(-9f32..9.0, 1280), wide: bool) {
            let (format, run) = if wide { (Format::Q4_K, 256) } else { (Format::Q4_0, 32) };
            let scalar = prepared(Isa::SCALAR, format, &x, 256);
            for (row, x) in x.chunks(256).enumerate() {
                for (number, &x) in scalar.numbers(row).into_iter().zip(x) {
                    prop_assert!((number - f64::from(x)).abs() <= 9.0 / 127.0 * 0.500_001);
                }
            }
            for (sixteen, sum) in scalar.codes.chunks(16).zip(&*scalar.sums) {
                prop_assert_eq!(sixteen.iter().map(|&code| i16::from(code)).sum::<i16>(), *sum);
            }
            for (codes, run) in scalar.codes.chunks(run).zip(x.chunks(run)) {
                let largest = codes.iter().map(|code| i32::from(*code).abs()).max();
                prop_assert_eq!(largest, Some(127), "{:?}", run);
            }
            #[cfg(target_arch = "x86_64")]
            {
                let mut with_eights = prepared(Isa::SCALAR, format, &x, 256);
                with_eights.sum_eights();
                for (eight, of_eight) in with_eights.codes.chunks(8).zip(with_eights.eights.chunks(2)) {
                    let too_much = eight.iter().map(|&code| i32::from(code) * 32).sum::<i32>();
                    prop_assert_eq!(of_eight.iter().map(|&sum| i32::from(sum)).collect::<Vec<_>>(), vec![-too_much; 2]);
                }
            }
            for isa in Isa::available() {
                let other = prepared(isa, format, &x, 256);
                prop_assert_eq!((&*other.codes, &*other.sums, &*other.scales), (&*scalar.codes, &*scalar.sums, &*scalar.scales));
            }
        }
    }

    #[test]
    fn runs_of_nothing_and_of_what_is_no_number() {
        for isa in Isa::available() {
            let check = |first: f32, scale: fn(f32) -> bool, codes: i8| {
                let mut x = vec![0.0; 64];
                x[0] = first;
                let activations = prepared(isa, Format::Q8_0, &x, 64);
                assert!(scale(activations.scales[0]), "{first}: scale {}", activations.scales[0]);
                assert_eq!((activations.codes[0], activations.scales[1]), (codes, 0.0), "{first}");
                assert!(activations.codes[1..].iter().all(|&code| code == 0), "{first}");
            };
            check(0.0, |scale| scale == 0.0, 0);
            check(1e-31, |scale| scale == 0.0, 0);
            check(-1e-30, |scale| scale > 0.0, -127);
            check(f32::MAX, |scale| scale > 1e36, 127);
            check(f32::NAN, f32::is_nan, 0);
            check(f32::NEG_INFINITY, |scale| scale == f32::INFINITY, 0);
        }
    }

    #[test]
    fn buffers_are_used_again() {
        let cpu = Cpu::new(Isa::best(), Threads::new(1));
        let mut x = Activations::default();
        x.prepare(&cpu, Format::Q8_0, &[1.0; 3 * 320], 320);
        x.prepare(&cpu, Format::Q8_0, &[2.0; 2 * 288], 288);
        assert_eq!(
            (x.rows(), x.width(), x.numbers(1)),
            (2, 288, prepared(cpu.isa, Format::Q8_0, &[2.0; 288], 288).numbers(0))
        );
        assert!(x.suits(Format::MXFP4) && !x.suits(Format::Q4_K) && !x.suits(Format::F32));
        // The padding of both rows is zero.
        assert!(x.codes[288..512].iter().chain(&x.codes[512 + 288..1024]).all(|&code| code == 0));
    }
}
