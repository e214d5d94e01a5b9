//! Packs rows of weights into panels in the form that an instruction set multiplies.
#![allow(unsafe_code)]
// All intrinsics in unsafe functions here need the same SAFETY comment: "these features are
// available".
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use super::amx;
use crate::activations::TILE_ROWS;
use crate::lanes::LANES;
use crate::matmul::plan::Kernel;
use crate::matmul::vector::Vector;
use crate::prefetch::prefetch;
use crate::quant::MAX_BYTES;
use crate::quant::avx2::{Encoding, SimdBlock, SimdSuperBlock};

/// Rows of weights per panel.
pub(super) const ROWS: usize = 32;

/// Number of sums of a panel with a tile, per lane: `[ROWS, TILE_ROWS]`.
pub(super) const SUMS: usize = ROWS * TILE_ROWS;

/// One super-block of each of [`ROWS`] rows.
#[repr(C, align(64))]
pub(super) struct SuperPanel {
    /// Unsigned, unless AVX2 multiplies the format as signed.
    /// For AMX the high part, see [`amx`].
    pub(super) quants: [[u8; 256]; ROWS],
    /// Only for AMX: the low part.
    pub(super) low: [[u8; 256]; ROWS],
    /// From [`Vector::scale_word`]: one per sixteen quants, or per 32.
    pub(super) scales: [[i32; 16]; ROWS],
    /// Zero points multiplied by their scale, in pairs of words.
    pub(super) zero_points: [[i32; 8]; ROWS],
    /// Minima in pairs of words.
    pub(super) minima: [[i32; 8]; ROWS],
    pub(super) scale: [f32; ROWS],
    pub(super) minimum: [f32; ROWS],
}

/// One block of each of [`ROWS`] rows.
#[repr(C, align(64))]
#[derive(Clone)]
pub(super) struct BlockPanel {
    /// As in [`SuperPanel`]; signed for AMX.
    pub(super) quants: [[u8; 32]; ROWS],
    pub(super) scales: [f32; ROWS],
    pub(super) offsets: [f32; ROWS],
}

impl BlockPanel {
    pub(super) const ZERO: BlockPanel =
        BlockPanel { quants: [[0; 32]; ROWS], scales: [0.0; ROWS], offsets: [0.0; ROWS] };
}

impl SuperPanel {
    pub(super) fn zero() -> Box<SuperPanel> {
        Box::new(SuperPanel {
            quants: [[0; 256]; ROWS],
            low: [[0; 256]; ROWS],
            scales: [[0; 16]; ROWS],
            zero_points: [[0; 8]; ROWS],
            minima: [[0; 8]; ROWS],
            scale: [0.0; ROWS],
            minimum: [0.0; ROWS],
        })
    }
}

/// Prefetch distance in bytes while unpacking blocks: several rows.
const AHEAD: usize = 4 << 10;

/// Up to [`ROWS`] rows of weights.
pub(super) struct WeightRows<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) row_bytes: usize,
    /// Chunks per row.
    pub(super) chunks: usize,
    pub(super) kernel: Kernel,
}

impl WeightRows<'_> {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() / self.row_bytes
    }

    /// Whether quants are multiplied as unsigned.
    fn unsigned(&self) -> bool {
        matches!(self.kernel, Kernel::GemmAvxVnni | Kernel::GemmAvx512)
    }

    /// The bytes of a chunk of each row.
    /// Prefetches those of the following rows, which are usually unpacked next.
    #[inline(always)]
    fn chunk(&self, index: usize, bytes: usize) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.row_bytes).map(move |row| {
            let (start, end) = (index * bytes, row.len().min((index + 1) * bytes));
            prefetch(row.as_ptr().wrapping_add(start + self.bytes.len()), bytes);
            &row[start..end]
        })
    }

    #[inline(always)]
    pub(super) unsafe fn pack_super_blocks<F: SimdSuperBlock, V: Vector>(
        &self,
        index: usize,
        panel: &mut SuperPanel,
    ) {
        let zero_point = match F::ENCODING {
            Encoding::Unsigned(zero_point) => zero_point,
            Encoding::Signed if self.unsigned() => 128,
            Encoding::Signed => 0,
        };
        let step = if F::SUB_BLOCKS_OF_16 { 1 } else { 2 };
        for (row, bytes) in self.chunk(index, F::FORMAT.block_bytes()).enumerate() {
            let (scales, minima) = pack_scales::<F>(bytes, row, panel);
            for (i, to) in panel.scales[row][..16 / step].iter_mut().enumerate() {
                *to = V::scale_word(i16::from(scales[i * step]));
            }
            if zero_point != 0 {
                let zero_points = scales.map(|scale| zero_point * i16::from(scale));
                pairs(&zero_points, step, &mut panel.zero_points[row]);
            }
            if F::MINIMA {
                pairs(&minima.map(i16::from), step, &mut panel.minima[row]);
            }
            let flip = if matches!(F::ENCODING, Encoding::Signed) && self.unsigned() { 0x80 } else { 0 };
            let vectors = F::vectors(bytes.as_ptr());
            for (quants, to) in vectors.into_iter().zip(panel.quants[row].as_chunks_mut().0) {
                store_codes(quants, flip, to);
            }
        }
    }

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) unsafe fn pack_high_low<F: SimdSuperBlock>(&self, index: usize, panel: &mut SuperPanel) {
        let zero_point = match F::ENCODING {
            Encoding::Unsigned(zero_point) => zero_point,
            Encoding::Signed => 0,
        };
        let step = if F::SUB_BLOCKS_OF_16 { 1 } else { 2 };
        for (row, bytes) in self.chunk(index, F::FORMAT.block_bytes()).enumerate() {
            let (scales, minima) = pack_scales::<F>(bytes, row, panel);
            if F::MINIMA {
                pairs(&minima.map(i16::from), step, &mut panel.minima[row]);
            }
            amx::high_and_low(
                F::vectors(bytes.as_ptr()),
                zero_point,
                &scales,
                &mut panel.quants[row],
                &mut panel.low[row],
            );
        }
    }

    /// Unpacks all blocks into `panels: [LANES, self.chunks]`.
    #[inline(always)]
    pub(super) unsafe fn pack_blocks<F: SimdBlock>(&self, panels: &mut [BlockPanel]) {
        let bytes_of = LANES * F::FORMAT.block_bytes();
        // Converts from the codec's form to that of this instruction set.
        let (flip, less) = match F::ENCODING {
            Encoding::Signed if self.unsigned() => (0x80, 0),
            Encoding::Unsigned(zero_point) if self.kernel == Kernel::GemmAmx => (0, zero_point as u8),
            _ => (0, 0),
        };
        let mut padded = [0; MAX_BYTES];
        for (row, bytes) in self.bytes.chunks_exact(self.row_bytes).enumerate() {
            for (index, bytes) in bytes.chunks(bytes_of).enumerate() {
                prefetch(bytes.as_ptr().wrapping_add(AHEAD), bytes_of);
                let bytes = if bytes.len() < bytes_of {
                    padded[..bytes.len()].copy_from_slice(bytes);
                    &padded[..bytes_of]
                } else {
                    bytes
                };
                let (quants, scales, offsets) = F::eight(bytes);
                for lane in 0..LANES {
                    let panel = &mut panels[lane * self.chunks + index];
                    store_codes(lower(quants[lane], less), flip, &mut panel.quants[row]);
                    panel.scales[row] = scales[lane];
                    panel.offsets[row] = offsets[lane];
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn pack_scales<F: SimdSuperBlock>(
    bytes: &[u8],
    row: usize,
    panel: &mut SuperPanel,
) -> ([i8; 16], [u8; 16]) {
    assert!(bytes.len() == F::FORMAT.block_bytes());
    let (scale, minimum) = F::factors(bytes.as_ptr());
    panel.scale[row] = scale;
    panel.minimum[row] = minimum;
    F::scales(bytes)
}

/// Every `step`th word, in pairs.
#[inline(always)]
fn pairs(words: &[i16; 16], step: usize, out: &mut [i32; 8]) {
    for (i, out) in out[..8 / step].iter_mut().enumerate() {
        *out = i32::from(words[2 * i * step] as u16) | i32::from(words[(2 * i + 1) * step]) << 16;
    }
}

#[inline(always)]
unsafe fn lower(quants: __m256i, less: u8) -> __m256i {
    _mm256_sub_epi8(quants, _mm256_set1_epi8(less as i8))
}

#[inline(always)]
unsafe fn store_codes(quants: __m256i, flip: u8, out: &mut [u8; 32]) {
    _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_xor_si256(quants, _mm256_set1_epi8(flip as i8)));
}
