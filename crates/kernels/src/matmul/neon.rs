//! Products by NEON: GEMV and small-batch GEMM as [`some_rows`] goes through them, and GEMM.
//!
//! In GEMM, sixteen rows of weights are unpacked once, and then multiplied four at a time with
//! eight rows of activations, whose quads of quants lie side by side:
//! ```text
//! activations, a quad | t0 t0 t0 t0 | t1 t1 t1 t1 | t2 .. | t3 .. |   of four rows
//! weights             | q0 q0 q0 q0 | q1 q1 q1 q1 | q2 .. | q3 .. |   of one row, a quad at a time
//! sums                |     t0      |     t1      |   t2  |   t3  |
//! ```
//! A tile of 4 by 8 has eight registers of sums, and eight more (or sixteen without FEAT_DotProd)
//! of sums that are yet to be scaled, of the 32 that there are.
//! Floats are summed in the lanes of the few rows' kernels.
#![allow(unsafe_code)]
// In an unsafe function whose safety is "these features are there", each intrinsic would say the
// same.
#![allow(unsafe_op_in_unsafe_fn)]
#![allow(clippy::needless_range_loop)] // Indices tell registers apart.

use std::arch::aarch64::*;
use std::cell::RefCell;
use std::ops::Range;
use std::thread::LocalKey;

use super::{Few, Product};
use crate::activations::{Activations, Blocks, TOKENS};
use crate::isa::Level;
use crate::lanes::LANES;
use crate::quant::neon::{Dot, Run8, RunBits, Runs, Sdot, Smull, Super1, SuperBits, Supers};
use crate::quant::{Codec, MAX_BYTES, PANEL, RUN, codebook, iq, k, legacy, ternary, whole};
use crate::{Cpu, Format};

/// The rows of weights in a task: unpacked, they stay in the second cache.
const ROWS: usize = 16;
/// The rows of weights in a tile.
const R: usize = 4;
/// The registers that hold a tile's rows of activations.
const N: usize = 2;
/// A tile's rows of activations: half a block.
const HALF: usize = 4 * N;
/// Rows of activations that GEMM pays for: a tile computes eight, but for half as many loads of
/// activations and without sums across lanes.
/// By counts of instructions, not measured.
const LEAST: usize = 6;

/// The sums of a tile in each lane.
type Lanes = [[[float32x4_t; N]; R]; LANES];

/// Whether products of `rows` rows of activations are worth unpacking weights for.
pub(super) fn pays(level: Level, format: Format, rows: usize) -> bool {
    level != Level::Scalar && matches!(format.block_len(), RUN | PANEL) && rows >= LEAST
}

/// # Safety
/// As [`super::some_rows`].
#[target_feature(enable = "dotprod")]
pub(super) unsafe fn some_rows<C: Codec>(p: Few, rows: Range<usize>) {
    super::some_rows::<C>(p, rows);
}

/// As [`super::matmul`].
pub(super) fn multiply(cpu: &Cpu, product: &Product, x: &mut Activations) {
    let tokens = product.tokens(x);
    x.in_blocks(cpu, product.named, tokens, false);
    let (format, blocks, panels) = (product.w.format, x.blocks(), x.panels());
    let row_bytes = product.w.bytes.len() / product.out;
    cpu.threads.run(product.out.div_ceil(ROWS), &|task| {
        let rows = task * ROWS..((task + 1) * ROWS).min(product.out);
        let bytes = &product.w.bytes[rows.start * row_bytes..rows.end * row_bytes];
        let task = Task { product, bytes, row_bytes, panels, blocks, tokens, rows };
        // SAFETY: the value of `isa` proves that this CPU has the features.
        unsafe {
            match cpu.isa.level() {
                Level::DotProd => task.multiply_dotprod(format),
                _ => task.multiply::<Smull>(format),
            }
        }
    });
}

/// Some rows of weights, and all rows of activations.
struct Task<'a> {
    product: &'a Product<'a>,
    /// The rows of weights.
    bytes: &'a [u8],
    row_bytes: usize,
    /// The panels of a row.
    panels: usize,
    blocks: &'a Blocks,
    /// The number of rows of activations.
    tokens: usize,
    rows: Range<usize>,
}

impl Task<'_> {
    /// # Safety
    /// The CPU has FEAT_DotProd; no other task has these rows.
    #[target_feature(enable = "dotprod")]
    unsafe fn multiply_dotprod(&self, format: Format) {
        self.multiply::<Sdot>(format);
    }

    /// # Safety
    /// The CPU has the features of `D`; no other task has these rows.
    #[inline(always)]
    unsafe fn multiply<D: Dot>(&self, format: Format) {
        match format {
            Format::Q4_0 => self.tiles::<Runs<legacy::Q4_0, D>>(),
            Format::Q4_1 => self.tiles::<Runs<legacy::Q4_1, D>>(),
            Format::Q5_0 => self.tiles::<Runs<legacy::Q5_0, D>>(),
            Format::Q5_1 => self.tiles::<Runs<legacy::Q5_1, D>>(),
            Format::Q8_0 => self.tiles::<Runs<legacy::Q8_0, D>>(),
            Format::IQ4_NL => self.tiles::<Runs<codebook::IQ4_NL, D>>(),
            Format::MXFP4 => self.tiles::<Runs<codebook::MXFP4, D>>(),
            Format::IQ4_XS => self.tiles::<Supers<codebook::IQ4_XS, D>>(),
            Format::Q2_K => self.tiles::<Supers<k::Q2_K, D>>(),
            Format::Q3_K => self.tiles::<Supers<k::Q3_K, D>>(),
            Format::Q4_K => self.tiles::<Supers<k::Q4_K, D>>(),
            Format::Q5_K => self.tiles::<Supers<k::Q5_K, D>>(),
            Format::Q6_K => self.tiles::<Supers<k::Q6_K, D>>(),
            Format::IQ1_S => self.tiles::<Supers<iq::IQ1_S, D>>(),
            Format::IQ1_M => self.tiles::<Supers<iq::IQ1_M, D>>(),
            Format::IQ2_XXS => self.tiles::<Supers<iq::IQ2_XXS, D>>(),
            Format::IQ2_XS => self.tiles::<Supers<iq::IQ2_XS, D>>(),
            Format::IQ2_S => self.tiles::<Supers<iq::IQ2_S, D>>(),
            Format::IQ3_XXS => self.tiles::<Supers<iq::IQ3_XXS, D>>(),
            Format::IQ3_S => self.tiles::<Supers<iq::IQ3_S, D>>(),
            Format::TQ1_0 => self.tiles::<Supers<ternary::TQ1_0, D>>(),
            Format::TQ2_0 => self.tiles::<Supers<ternary::TQ2_0, D>>(),
            Format::F32 | Format::F16 | Format::BF16 | Format::NVFP4 | Format::Q1_0 => {
                unreachable!("neither runs nor superblocks")
            }
        }
    }

    /// # Safety
    /// As [`Task::multiply`].
    #[inline(always)]
    unsafe fn tiles<C: Tiles>(&self) {
        C::scratch().with_borrow_mut(|unpacked| {
            let mut padded = [0; MAX_BYTES]; // The last panels of all rows are equally long, so what follows them stays zero.
            unpacked.clear();
            for row in self.bytes.chunks_exact(self.row_bytes) {
                unpacked.extend(row.chunks(C::BYTES).map(|bytes| C::unpack(whole::<C>(bytes, &mut padded))));
            }
            let last = self.rows.len() - 1;
            for half in 0..2 * self.blocks.count() - usize::from(self.blocks.ends_in_half()) {
                let at = At { block: half * HALF / TOKENS, from: half * HALF % TOKENS };
                for first in (0..self.rows.len()).step_by(R) {
                    let mut lanes = [[[vdupq_n_f32(0.0); N]; R]; LANES];
                    for index in 0..self.panels {
                        // In place of a row that isn't there the last one is used once more.
                        let w = |r: usize| &unpacked[(first + r).min(last) * self.panels + index];
                        let w = [w(0), w(1), w(2), w(3)];
                        C::add(w, self.blocks, (index, self.panels), at, &mut lanes);
                    }
                    self.put(half, first, &lanes);
                }
            }
        });
    }

    /// Adds up the lanes of a tile, and puts the numbers where they belong.
    ///
    /// # Safety
    /// As [`Task::multiply`].
    #[inline(always)]
    unsafe fn put(&self, half: usize, first: usize, lanes: &Lanes) {
        for r in 0..R.min(self.rows.len() - first) {
            let mut numbers = [0.0; HALF];
            for n in 0..N {
                let lane = |i: usize| lanes[i][r][n];
                let even = vaddq_f32(vaddq_f32(lane(0), lane(4)), vaddq_f32(lane(2), lane(6)));
                let odd = vaddq_f32(vaddq_f32(lane(1), lane(5)), vaddq_f32(lane(3), lane(7)));
                vst1q_f32(numbers.as_mut_ptr().add(4 * n), vaddq_f32(even, odd));
            }
            for (token, number) in (half * HALF..self.tokens).zip(numbers) {
                let at = token * self.product.out + self.rows.start + first + r;
                self.product.y.slice(at, 1)[0] = number;
            }
        }
    }
}

/// A block of rows of activations, and which of its rows a tile begins with.
#[derive(Clone, Copy)]
struct At {
    block: usize,
    from: usize,
}

/// What multiplies unpacked rows of weights with blocks of activations.
trait Tiles: Codec<Panel: Sized + 'static> {
    /// Where a thread unpacks to.
    fn scratch() -> &'static LocalKey<RefCell<Vec<Self::Panel>>>;

    /// Adds the products of panel `index` of `panels` to the sums of a tile.
    ///
    /// # Safety
    /// The CPU has the features of the codec.
    unsafe fn add(w: [&Self::Panel; R], x: &Blocks, panel: (usize, usize), at: At, lanes: &mut Lanes);
}

thread_local! {
    static RUNS: RefCell<Vec<Run8>> = const { RefCell::new(Vec::new()) };
    static SUPERS: RefCell<Vec<Super1>> = const { RefCell::new(Vec::new()) };
}

/// Sums that are yet to be scaled, of a tile.
type Sums<D> = [[<D as Dot>::Sums; N]; R];

/// Adds the products of sixteen quants of the rows of weights with four quads of activations.
///
/// # Safety
/// The CPU has the features of `D`.
#[inline(always)]
unsafe fn add_sixteen<D: Dot>(
    mut sums: Sums<D>,
    w: [int8x16_t; R],
    x: &[[[i8; 4]; TOKENS]],
    from: usize,
) -> Sums<D> {
    macro_rules! quads {
        ($($quad:literal)+) => {$(
            for n in 0..N {
                let x = vld1q_s8(x[$quad][from + 4 * n..][..4].as_ptr().cast());
                for r in 0..R {
                    sums[r][n] = D::add_quad::<$quad>(sums[r][n], x, w[r]);
                }
            }
        )+};
    }
    quads!(0 1 2 3);
    sums
}

impl<F: RunBits, D: Dot> Tiles for Runs<F, D> {
    fn scratch() -> &'static LocalKey<RefCell<Vec<Run8>>> {
        &RUNS
    }

    #[inline(always)]
    unsafe fn add(w: [&Run8; R], x: &Blocks, (index, panels): (usize, usize), at: At, lanes: &mut Lanes) {
        for (lane, of_lane) in lanes.iter_mut().enumerate() {
            let x = &x.runs(lane)[at.block * panels + index];
            let mut sums = [[D::zero(); N]; R];
            for half in 0..2 {
                let w = |r: usize| w[r].quants[lane][half];
                sums = add_sixteen::<D>(sums, [w(0), w(1), w(2), w(3)], &x.codes[4 * half..], at.from);
            }
            for n in 0..N {
                let from = at.from + 4 * n;
                let scales = vld1q_f32(x.scales[from..][..4].as_ptr());
                let code_sums = vcvtq_f32_s32(vld1q_s32(x.sums[from..][..4].as_ptr()));
                for r in 0..R {
                    let total = vcvtq_f32_s32(D::quads(sums[r][n]));
                    let sum = &mut of_lane[r][n];
                    *sum = vfmaq_f32(*sum, vmulq_n_f32(scales, w[r].scales[lane]), total);
                    if F::OFFSET {
                        *sum = vfmaq_f32(*sum, vmulq_n_f32(scales, w[r].offsets[lane]), code_sums);
                    }
                }
            }
        }
    }
}

impl<F: SuperBits, D: Dot> Tiles for Supers<F, D> {
    fn scratch() -> &'static LocalKey<RefCell<Vec<Super1>>> {
        &SUPERS
    }

    #[inline(always)]
    unsafe fn add(w: [&Super1; R], x: &Blocks, (index, _): (usize, usize), at: At, lanes: &mut Lanes) {
        let x = &x.supers(index)[at.block];
        let mut totals = [[vdupq_n_s32(0); N]; R];
        let of_scale = if F::SIXTEENS { 1 } else { 2 };
        for first in (0..PANEL / 16).step_by(of_scale) {
            let mut sums = [[D::zero(); N]; R];
            for i in first..first + of_scale {
                let w = |r: usize| w[r].quants[i];
                sums = add_sixteen::<D>(sums, [w(0), w(1), w(2), w(3)], &x.codes[4 * i..], at.from);
            }
            for r in 0..R {
                for n in 0..N {
                    totals[r][n] = vmlaq_n_s32(totals[r][n], D::quads(sums[r][n]), w[r].scales[first]);
                }
            }
        }
        for n in 0..N {
            let from = at.from + 4 * n;
            let scales = vld1q_f32(x.scales[from..][..4].as_ptr());
            for r in 0..R {
                let sum = &mut lanes[index % LANES][r][n];
                *sum = vfmaq_f32(*sum, vmulq_n_f32(scales, w[r].scale), vcvtq_f32_s32(totals[r][n]));
                if F::MINIMA {
                    let total = if F::SIXTEENS {
                        of_minima(
                            |pair| (&x.sums[pair], [w[r].minima[2 * pair], w[r].minima[2 * pair + 1]]),
                            8,
                            from,
                        )
                    } else {
                        of_minima(
                            |pair| (&x.wide_sums[pair], [w[r].minima[4 * pair], w[r].minima[4 * pair + 2]]),
                            4,
                            from,
                        )
                    };
                    *sum = vfmaq_f32(*sum, vmulq_n_f32(scales, -w[r].minimum), vcvtq_f32_s32(total));
                }
            }
        }
    }
}

/// The products of minima with sums of activations, which come in so many pairs, of four rows of
/// activations from `from` on.
#[inline(always)]
unsafe fn of_minima<'a>(
    pair: impl Fn(usize) -> (&'a [[i16; 2]; TOKENS], [i16; 2]),
    pairs: usize,
    from: usize,
) -> int32x4_t {
    let mut totals = [vdupq_n_s32(0); 2];
    for i in 0..pairs {
        let (sums, [first, second]) = pair(i);
        let minima = vreinterpretq_s16_s32(vdupq_n_s32(i32::from(first) | i32::from(second) << 16));
        let sums = vld1q_s16(sums[from..][..4].as_ptr().cast());
        totals[0] = vmlal_s16(totals[0], vget_low_s16(sums), vget_low_s16(minima));
        totals[1] = vmlal_high_s16(totals[1], sums, minima);
    }
    vpaddq_s32(totals[0], totals[1])
}
