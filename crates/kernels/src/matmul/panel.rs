//! Panels: some rows of weights, unpacked into what an instruction set multiplies.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the
// same.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use super::vector::Vector;
use super::{fetch, tiles};
use crate::activations::TOKENS;
use crate::isa::Level;
use crate::lanes::LANES;
use crate::quant::MAX_BYTES;
use crate::quant::avx2::{Bias, RunBits, SuperBits};

/// The rows of weights in a panel.
pub(super) const ROWS: usize = 32;

/// The numbers of a panel that are summed in lanes, for a block: `[ROWS, TOKENS]`.
pub(super) const SUMS: usize = ROWS * TOKENS;

/// A superblock of each of [`ROWS`] rows.
#[repr(C, align(64))]
pub(super) struct SuperPanel {
    /// Without a sign, unless the format is a signed one of AVX2.
    /// AMX: see [`tiles`].
    pub(super) codes: [[u8; 256]; ROWS],
    /// AMX only: the second plane.
    pub(super) low: [[u8; 256]; ROWS],
    /// As [`Vector::scale_word`] makes them: of each sixteen codes, or of each 32.
    pub(super) scales: [[i32; 16]; ROWS],
    /// What is added to codes times their scale, in pairs of words.
    pub(super) lowered: [[i32; 8]; ROWS],
    /// Minima in pairs of words.
    pub(super) minima: [[i32; 8]; ROWS],
    pub(super) scale: [f32; ROWS],
    pub(super) minimum: [f32; ROWS],
}

/// A run of each of [`ROWS`] rows.
#[repr(C, align(64))]
#[derive(Clone)]
pub(super) struct RunPanel {
    /// As those of [`SuperPanel`]; with a sign for AMX.
    pub(super) codes: [[u8; 32]; ROWS],
    pub(super) scales: [f32; ROWS],
    pub(super) offsets: [f32; ROWS],
}

impl RunPanel {
    pub(super) const ZERO: RunPanel =
        RunPanel { codes: [[0; 32]; ROWS], scales: [0.0; ROWS], offsets: [0.0; ROWS] };
}

impl SuperPanel {
    pub(super) fn zero() -> Box<SuperPanel> {
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

/// How many bytes ahead of runs that are unpacked others are asked for: some rows.
const AHEAD: usize = 4 << 10;

/// Up to [`ROWS`] rows of weights.
pub(super) struct Part<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) row_bytes: usize,
    pub(super) panels: usize,
    pub(super) level: Level,
}

impl Part<'_> {
    pub(super) fn rows(&self) -> usize {
        self.bytes.len() / self.row_bytes
    }

    /// Whether codes are multiplied without a sign.
    fn unsigned(&self) -> bool {
        matches!(self.level, Level::AvxVnni | Level::Avx512)
    }

    /// The bytes of a panel of each row.
    /// Those of the rows after these are asked for: most often they are unpacked next.
    #[inline(always)]
    fn panel(&self, index: usize, bytes: usize) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.row_bytes).map(move |row| {
            let (start, end) = (index * bytes, row.len().min((index + 1) * bytes));
            fetch(row.as_ptr().wrapping_add(start + self.bytes.len()), bytes);
            &row[start..end]
        })
    }

    #[inline(always)]
    pub(super) unsafe fn fill_supers<F: SuperBits, V: Vector>(&self, index: usize, panel: &mut SuperPanel) {
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
            let vectors = F::vectors(bytes.as_ptr());
            for (codes, to) in vectors.into_iter().zip(panel.codes[row].as_chunks_mut().0) {
                store_codes(codes, flip, to);
            }
        }
    }

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) unsafe fn fill_planes<F: SuperBits>(&self, index: usize, panel: &mut SuperPanel) {
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
            tiles::planes(
                F::vectors(bytes.as_ptr()),
                bias,
                &scales,
                &mut panel.codes[row],
                &mut panel.low[row],
            );
        }
    }

    /// Unpacks all runs into `panels: [LANES, self.panels]`.
    #[inline(always)]
    pub(super) unsafe fn fill_runs<F: RunBits>(&self, panels: &mut [RunPanel]) {
        let bytes_of = LANES * F::FORMAT.block_bytes();
        // From what the codec gives to what this instruction set wants.
        let (flip, less) = match F::BIAS {
            Bias::Signed if self.unsigned() => (0x80, 0),
            Bias::Unsigned(bias) if self.level == Level::Amx => (0, bias as u8),
            _ => (0, 0),
        };
        let mut padded = [0; MAX_BYTES];
        for (row, bytes) in self.bytes.chunks_exact(self.row_bytes).enumerate() {
            for (index, bytes) in bytes.chunks(bytes_of).enumerate() {
                fetch(bytes.as_ptr().wrapping_add(AHEAD), bytes_of);
                let bytes = if bytes.len() < bytes_of {
                    padded[..bytes.len()].copy_from_slice(bytes);
                    &padded[..bytes_of]
                } else {
                    bytes
                };
                let (codes, scales, offsets) = F::eight(bytes);
                for lane in 0..LANES {
                    let panel = &mut panels[lane * self.panels + index];
                    store_codes(lower(codes[lane], less), flip, &mut panel.codes[row]);
                    panel.scales[row] = scales[lane];
                    panel.offsets[row] = offsets[lane];
                }
            }
        }
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
unsafe fn lower(codes: __m256i, less: u8) -> __m256i {
    _mm256_sub_epi8(codes, _mm256_set1_epi8(less as i8))
}

#[inline(always)]
unsafe fn store_codes(codes: __m256i, flip: u8, out: &mut [u8; 32]) {
    _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_xor_si256(codes, _mm256_set1_epi8(flip as i8)));
}
