//! Rows of keys or values in slots, in the cache's number format.
#![allow(unsafe_code)]

mod bytes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod source;

use half::f16;

use crate::format::BLOCK;
use crate::isa::{Level, for_each_isa};
use crate::{Aligned, Cpu, Isa};
pub(crate) use source::{F16, F32, KvSource, Q8_0, View, widen, with_source};

/// The number format of a KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// 4 bytes per number, exact.
    F32,
    /// 2 bytes per number; numbers beyond its range (65504) are clamped.
    F16,
    /// 34 bytes per 32 numbers: int8 and one f16 scale.
    Q8_0,
}

/// The greatest finite f16.
const MAX_F16: f32 = 65504.0;

/// Slots, each a row of numbers.
/// Memory that was never written isn't resident: the system provides zero pages on first write.
#[derive(Debug)]
pub struct KvRows {
    width: usize,
    slots: usize,
    numbers: Numbers,
}

/// Row after row.
#[derive(Debug)]
enum Numbers {
    F32(Aligned<f32>),
    F16(Aligned<u16>),
    /// Runs of a row, which never cross into the next row: a scale (f16) per block, and the quants.
    Q8_0 {
        scales: Aligned<u16>,
        quants: Aligned<i8>,
    },
}

impl KvRows {
    /// Rows of zeros.
    /// `None` if rows of `width` numbers don't fit the format (Q8_0: a multiple of 32), or this
    /// many can't be addressed.
    pub fn zeros(slots: usize, width: usize, format: KvFormat) -> Option<Self> {
        let len = slots.checked_mul(width).filter(|&len| len <= isize::MAX as usize / 4)?;
        let numbers = match format {
            KvFormat::F32 => Numbers::F32(Aligned::zeros(len)),
            KvFormat::F16 => Numbers::F16(Aligned::zeros(len)),
            KvFormat::Q8_0 if width.is_multiple_of(BLOCK) => {
                Numbers::Q8_0 { scales: Aligned::zeros(len / BLOCK), quants: Aligned::zeros(len) }
            }
            KvFormat::Q8_0 => return None,
        };
        Some(KvRows { width, slots, numbers })
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Numbers per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Bytes of all slots, written or not.
    pub fn bytes(&self) -> usize {
        match &self.numbers {
            Numbers::F32(numbers) => size_of_val(&numbers[..]),
            Numbers::F16(numbers) => size_of_val(&numbers[..]),
            Numbers::Q8_0 { scales, quants } => size_of_val(&scales[..]) + quants.len(),
        }
    }

    /// Writes `rows: [n, width]` to the slots from `slot` on.
    ///
    /// # Panics
    /// If `rows` is not a whole number of rows, or there are too few slots.
    pub fn write(&mut self, cpu: &Cpu, slot: usize, rows: &[f32]) {
        assert!(
            rows.len().is_multiple_of(self.width.max(1)),
            "{} numbers, rows of {}",
            rows.len(),
            self.width
        );
        let range = slot * self.width..slot * self.width + rows.len();
        match &mut self.numbers {
            Numbers::F32(numbers) => numbers[range].copy_from_slice(rows),
            Numbers::F16(numbers) => narrow(cpu.isa, rows, &mut numbers[range]),
            Numbers::Q8_0 { scales, quants } => {
                let scales = &mut scales[range.start / BLOCK..range.end / BLOCK];
                quantize(cpu.isa, rows, scales, &mut quants[range]);
            }
        }
    }

    /// Copies the `slots` rows from slot `from` on to slot `to` on.
    ///
    /// # Panics
    /// If there are too few slots.
    pub fn copy(&mut self, from: usize, to: usize, slots: usize) {
        let (range, to) = (from * self.width..(from + slots) * self.width, to * self.width);
        match &mut self.numbers {
            Numbers::F32(numbers) => numbers.copy_within(range, to),
            Numbers::F16(numbers) => numbers.copy_within(range, to),
            Numbers::Q8_0 { scales, quants } => {
                scales.copy_within(range.start / BLOCK..range.end / BLOCK, to / BLOCK);
                quants.copy_within(range, to);
            }
        }
    }

    /// The numbers of all slots, row after row.
    pub(crate) fn numbers(&self) -> View<'_> {
        match &self.numbers {
            Numbers::F32(numbers) => View::F32(F32(numbers)),
            Numbers::F16(numbers) => View::F16(F16(numbers)),
            Numbers::Q8_0 { scales, quants } => View::Q8_0(Q8_0 { scales, quants }),
        }
    }

    /// Reads the numbers from `column` on of n rows from `slot` on into `out: [n, width]`.
    #[cfg(test)]
    pub(crate) fn read(&self, isa: Isa, slot: usize, column: usize, width: usize, out: &mut [f32]) {
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            widen(isa, self.numbers(), (slot + i) * self.width + column, out);
        }
    }
}

for_each_isa! {
    fn quantize(x: &[f32], scales: &mut [u16], quants: &mut [i8]) {
        for ((x, quants), scale) in x.as_chunks::<BLOCK>().0.iter().zip(quants.as_chunks_mut::<BLOCK>().0).zip(scales) {
            (*scale, *quants) = quantize_block(x);
        }
    }
}

/// The quants are the multiples of the stored scale that are nearest to the numbers.
#[inline(always)]
fn quantize_block(x: &[f32; BLOCK]) -> (u16, [i8; BLOCK]) {
    let mut lane = [0f32; 8];
    for x in x.as_chunks::<8>().0 {
        for (&x, most) in x.iter().zip(&mut lane) {
            *most = if x.abs() > *most { x.abs() } else { *most };
        }
    }
    let most = lane.into_iter().fold(0f32, |most, x| if x > most { x } else { most });
    let scale = f16::from_f32_const((most / 127.0).min(MAX_F16));
    let inverse = if scale.to_bits() == 0 { 0.0 } else { 1.0 / scale.to_f32_const() };
    // Adding this rounds, half to even, and leaves the integer in the low bits.
    const ROUND: f32 = 1.5 * (1 << 23) as f32;
    (scale.to_bits(), x.map(|x| ((x * inverse).clamp(-127.0, 127.0) + ROUND).to_bits() as i8))
}

fn narrow(isa: Isa, x: &[f32], out: &mut [u16]) {
    match isa.level() {
        Level::Scalar => {
            for (out, &x) in out.iter_mut().zip(x) {
                *out = narrowed(x);
            }
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the value proves that this CPU has the instruction set.
        Level::Avx2 | Level::AvxVnni | Level::Avx512 | Level::Amx => unsafe { avx2::narrow(x, out) },
        #[cfg(target_arch = "aarch64")]
        Level::Neon | Level::DotProd => neon::narrow(x, out),
    }
}

#[inline(always)]
fn narrowed(x: f32) -> u16 {
    f16::from_f32_const(x.clamp(-MAX_F16, MAX_F16)).to_bits()
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{MAX_F16, narrowed};

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn narrow(x: &[f32], out: &mut [u16]) {
        assert_eq!(x.len(), out.len());
        let whole = x.len() / 8 * 8;
        let (least, most) = (_mm256_set1_ps(-MAX_F16), _mm256_set1_ps(MAX_F16));
        for i in (0..whole).step_by(8) {
            // SAFETY: eight numbers from i on are within `x` and `out`, which have equal lengths.
            unsafe {
                let x = _mm256_loadu_ps(x.as_ptr().add(i));
                // Given a NaN and a limit these return the second operand, the NaN.
                let x = _mm256_min_ps(most, _mm256_max_ps(least, x));
                let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
                _mm_storeu_si128(out.as_mut_ptr().add(i).cast(), half);
            }
        }
        for (out, &x) in out[whole..].iter_mut().zip(&x[whole..]) {
            *out = narrowed(x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same, cpus, noise};

    fn read(cpu: &Cpu, kv: &KvRows, slot: usize, slots: usize, column: usize, width: usize) -> Vec<f32> {
        let mut out = vec![f32::NAN; slots * width];
        kv.read(cpu.isa, slot, column, width, &mut out);
        out
    }

    /// Checks that written numbers are read back within `tolerance` of the greatest number of 32,
    /// and with the same bits everywhere.
    fn check(format: KvFormat, width: usize, tolerance: f32) {
        let rows = noise(width as u64, 5 * width);
        let mut first: Option<Vec<f32>> = None;
        for cpu in cpus() {
            let mut kv = KvRows::zeros(9, width, format).unwrap();
            kv.write(&cpu, 2, &rows[..3 * width]);
            kv.write(&cpu, 5, &rows[3 * width..]);
            let all = read(&cpu, &kv, 0, 9, 0, width);
            assert!(all[..2 * width].iter().chain(&all[7 * width..]).all(|&x| x == 0.0));
            let all = &all[2 * width..7 * width];
            for (x, y) in rows.iter().zip(all) {
                assert!((x - y).abs() <= tolerance, "{format:?}: {y} for {x}");
            }
            assert_same(first.get_or_insert_with(|| all.to_vec()), all, &format!("{format:?} {cpu:?}"));
            for (column, part) in
                [(0, 1), (width - 1, 1), (width / 3, width / 2), (width / 2, width - width / 2)]
            {
                let wanted: Vec<f32> =
                    all.chunks(width).flat_map(|row| row[column..column + part].to_vec()).collect();
                assert_same(&wanted, &read(&cpu, &kv, 2, 5, column, part), "part of a row");
            }
            kv.copy(2, 0, 5);
            assert_same(all, &read(&cpu, &kv, 0, 5, 0, width), "copied");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for width in [32, 64, 96, 576] {
            check(KvFormat::F32, width, 0.0);
            check(KvFormat::F16, width, 0.000_25);
            check(KvFormat::Q8_0, width, 0.004_2);
        }
        for width in [3, 20, 37] {
            check(KvFormat::F32, width, 0.0);
            check(KvFormat::F16, width, 0.000_25);
        }
    }

    #[test]
    fn far_numbers_saturate_and_tiny_ones_vanish() {
        let mut row = [0f32; 32];
        row[..6].copy_from_slice(&[1e6, -1e6, 1e-9, 65504.0, f32::INFINITY, -0.5]);
        for cpu in cpus() {
            let mut f16 = KvRows::zeros(1, 32, KvFormat::F16).unwrap();
            f16.write(&cpu, 0, &row);
            assert_eq!(read(&cpu, &f16, 0, 1, 0, 6), [65504.0, -65504.0, 0.0, 65504.0, 65504.0, -0.5]);
            let mut q8_0 = KvRows::zeros(1, 32, KvFormat::Q8_0).unwrap();
            q8_0.write(&cpu, 0, &row);
            assert!(read(&cpu, &q8_0, 0, 1, 0, 32).iter().all(|x| x.is_finite()));
            q8_0.write(&cpu, 0, &[1e-9; 32]);
            assert!(read(&cpu, &q8_0, 0, 1, 0, 32).iter().all(|&x| x == 0.0));
        }
    }

    #[test]
    fn every_f16_is_widened_exactly() {
        let all: Vec<u16> = (0..=u16::MAX).filter(|&x| !f16::from_bits(x).is_nan()).collect();
        for isa in Isa::available() {
            let mut out = vec![0.0; all.len()];
            widen(isa, View::F16(F16(&all)), 0, &mut out);
            let wanted: Vec<f32> = all.iter().map(|&x| f16::from_bits(x).to_f32_const()).collect();
            assert_same(&wanted, &out, isa.name());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(KvRows::zeros(4, 33, KvFormat::Q8_0).is_none());
        assert!(KvRows::zeros(usize::MAX, 2, KvFormat::F16).is_none());
        let bytes = |format| KvRows::zeros(10, 64, format).unwrap().bytes();
        assert_eq!([bytes(KvFormat::F32), bytes(KvFormat::F16), bytes(KvFormat::Q8_0)], [2560, 1280, 680]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn slots_take_no_memory_until_written() {
        let resident = || -> usize {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        for format in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
            let before = resident();
            let mut kv = KvRows::zeros(1 << 18, 1024, format).unwrap();
            kv.write(&cpus()[0], 1 << 17, &[1.0; 1024]);
            assert!(kv.bytes() >= 1 << 28);
            assert!(resident().saturating_sub(before) < 1 << 26, "{format:?}");
        }
    }
}
