//! Activations in the form that weights multiply with.
#![allow(unsafe_code)]

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod tiles;

use crate::elementwise::over_rows;
use crate::format::{BLOCK, FLOAT_CHUNK, SUPER_BLOCK};
use crate::thread_pool::Disjoint;
use crate::wide::{LANES, Wide, for_each_wide};
use crate::{Aligned, Cpu, Format};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use tiles::Tiles;
#[cfg(target_arch = "x86_64")]
pub(crate) use tiles::{BlockTile, SuperTile, WordTile};

/// Rows of activations per GEMM tile.
pub(crate) const TILE_ROWS: usize = 16;

/// Rows of activations in the form that a weight format's dot product requires, as in llama.cpp.
/// For float weights they are f32.
/// For formats with blocks below 256 they are 8-bit quants in blocks of 32 with an f32 scale each
/// (Q8_0).
/// For formats with blocks of 256 they are 8-bit quants in blocks of 256 with an f32 scale each
/// (Q8_K).
/// Rows are padded with zeros to whole chunks: 256 quants, or 64 floats.
/// Buffers are reused.
#[derive(Debug, Default)]
pub struct Activations {
    form: Form,
    rows: usize,
    width: usize,
    /// Chunks per row.
    chunks: usize,
    /// `[rows, chunks * 64]`, for [`Form::Floats`].
    floats: Aligned<f32>,
    /// `[rows, chunks * 256]`: within -127..=127.
    quants: Aligned<i8>,
    /// `[rows, chunks * 16]`: the sums of each sixteen quants.
    sums: Aligned<i16>,
    /// `[rows, chunks * 8]` or `[rows, chunks]`.
    scales: Aligned<f32>,
    /// `[rows, chunks * 256]`: the quants in another [`Order`].
    #[cfg(target_arch = "x86_64")]
    interleaved: Derived<i8>,
    /// `[rows, chunks * 32]`: see [`Sums::BlockPairs`].
    #[cfg(target_arch = "x86_64")]
    block_pairs: Derived<i16>,
    /// `[rows, chunks * 64]`: see [`Sums::Octets`].
    #[cfg(target_arch = "x86_64")]
    octets: Derived<i16>,
    /// Tiles for GEMM.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    tiles: Tiles,
}

/// The forms of activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Floats,
    /// Blocks of 32.
    Blocks,
    /// Blocks of 256.
    SuperBlocks,
}

impl Form {
    fn of(format: Format) -> Form {
        match format.block_len() {
            1 => Form::Floats,
            SUPER_BLOCK => Form::SuperBlocks,
            _ => Form::Blocks,
        }
    }

    /// How many quants share a scale.
    fn block(self) -> usize {
        match self {
            Form::Floats | Form::Blocks => BLOCK,
            Form::SuperBlocks => SUPER_BLOCK,
        }
    }
}

/// The layout of quantized rows for a kernel: the order of quants, and which sums of them.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub order: Order,
    pub sums: Sums,
}

#[cfg(target_arch = "x86_64")]
impl Layout {
    /// Rows in the order of quantization.
    pub(crate) const PLAIN: Layout = Layout { order: Order::Plain, sums: Sums::Sixteens };
}

/// An order of the quants of a super-block.
/// In the interleaved orders a register gets the nibbles of super-blocks as stored, and two
/// consecutive registers have the same scales.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) enum Order {
    Plain,
    /// For registers of 32 bytes.
    /// For each four sub-blocks (0 1 2 3) a register contains a pair, alternating eight quants of
    /// each:
    ///
    /// ```text
    /// register 0: 0[0..8] 2[0..8] 0[16..24] 2[16..24]   1: 0[8..16] 2[8..16] 0[24..32] 2[24..32]
    /// register 2: 1[0..8] 3[0..8] 1[16..24] 3[16..24]   3: 1[8..16] 3[8..16] 1[24..32] 3[24..32]
    /// ```
    Interleaved256,
    /// For registers of 64 bytes, with sixteen quants of every second sub-block:
    ///
    /// ```text
    /// register 0: 0[..16] 2[..16] 4[..16] 6[..16]       1: 0[16..] 2[16..] 4[16..] 6[16..]
    /// register 2: 1[..16] 3[..16] 5[..16] 7[..16]       3: 1[16..] 3[16..] 5[16..] 7[16..]
    /// ```
    Interleaved512,
}

#[cfg(target_arch = "x86_64")]
impl Order {
    /// The source of each group of eight quants.
    const fn octets(self) -> [usize; 32] {
        let mut octets = [0; 32];
        let mut i = 0;
        while i < 32 {
            octets[i] = match self {
                Order::Plain => i,
                // Out of four sub-blocks a pair, of this pair a register, and each half of both
                // sub-blocks.
                Order::Interleaved256 => i / 16 * 16 + i / 8 % 2 * 4 + i / 4 % 2 + i / 2 % 2 * 2 + i % 2 * 8,
                Order::Interleaved512 => i / 8 * 2 + i / 2 % 4 * 8 + i % 2,
            };
            i += 1;
        }
        octets
    }
}

/// Sums of quants, which are multiplied by minima and zero points.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) enum Sums {
    /// The sum of each sixteen quants.
    Sixteens,
    /// The sum of each 32: those of two blocks, four times, then those of the next two.
    /// This fills registers of 128 bits.
    BlockPairs,
    /// For each eight, -32 times the sum, twice: the initial value for sums of products with quants
    /// that are 32 too large.
    Octets,
}

#[cfg(target_arch = "x86_64")]
impl Sums {
    /// The number of sums per 256 quants.
    pub(crate) const fn per_super_block(self) -> usize {
        match self {
            Sums::Sixteens => 16,
            Sums::BlockPairs => 32,
            Sums::Octets => 64,
        }
    }
}

/// Data derived from all rows when a kernel first needs it.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Default)]
struct Derived<T> {
    numbers: Aligned<T>,
    made: bool,
}

#[cfg(target_arch = "x86_64")]
impl<T: Copy + Default> Derived<T> {
    /// Computes `len` numbers, unless they are present.
    fn make(&mut self, len: usize, fill: impl FnOnce(&mut [T])) {
        if !std::mem::replace(&mut self.made, true) {
            fill(self.numbers.at_least(len));
        }
    }

    /// The row at index `row`, `width` numbers wide.
    fn row(&self, row: usize, width: usize) -> &[T] {
        assert!(self.made, "activations in a layout that was not made");
        &self.numbers[row * width..][..width]
    }
}

impl Activations {
    /// Converts the rows of `x`, each `width` numbers, for weights of `format`.
    ///
    /// A block's scale is its largest magnitude / 127; quants are rounded to the nearest, ties to
    /// even.
    /// A block whose largest magnitude is below 1e-30 becomes zeros.
    /// A block with a NaN or an infinity gets that as its scale, so that it shows in the results.
    ///
    /// # Panics
    /// Unless `x` consists of whole rows, and `width` of whole blocks of the format.
    pub fn prepare(&mut self, cpu: &Cpu, format: Format, x: &[f32], width: usize) {
        assert!(width > 0 && x.len().is_multiple_of(width), "{} activations in rows of {width}", x.len());
        assert!(width.is_multiple_of(format.block_len()), "rows of {width} numbers in {}", format.name());
        #[cfg(target_arch = "x86_64")]
        {
            self.interleaved.made = false;
            self.block_pairs.made = false;
            self.octets.made = false;
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        self.tiles.forget();
        self.form = Form::of(format);
        self.rows = x.len() / width;
        self.width = width;
        if self.form == Form::Floats {
            self.chunks = width.div_ceil(FLOAT_CHUNK);
            let padded = self.chunks * FLOAT_CHUNK;
            let floats = self.floats.at_least(self.rows * padded);
            for (to, from) in floats.chunks_exact_mut(padded).zip(x.chunks_exact(width)) {
                to[..width].copy_from_slice(from);
                to[width..].fill(0.0);
            }
            return;
        }
        self.chunks = width.div_ceil(SUPER_BLOCK);
        let block = self.form.block();
        let padded = self.chunks * SUPER_BLOCK;
        let (sums, scales) = (padded / 16, padded / block);
        let all = (
            Disjoint::new(self.quants.at_least(self.rows * padded)),
            Disjoint::new(self.sums.at_least(self.rows * sums)),
            Disjoint::new(self.scales.at_least(self.rows * scales)),
        );
        over_rows(cpu, self.rows, width, &|rows| {
            for row in rows {
                let x = &x[row * width..][..width];
                // SAFETY: no two tasks have the same row.
                let (quants, sums, scales) = unsafe {
                    (
                        all.0.slice(row * padded, padded),
                        all.1.slice(row * sums, sums),
                        all.2.slice(row * scales, scales),
                    )
                };
                quantize(cpu.isa, x, block, quants, sums, scales);
            }
        });
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The numbers per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Whether this is the form for weights of `format`.
    pub fn suits(&self, format: Format) -> bool {
        self.form == Form::of(format)
    }

    /// Prepares [`Activations::tiles`] of the first `rows` rows, or of those in `row_ids`, in that
    /// order.
    /// With `as_words` it also widens the quants of blocks to words.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn make_tiles(&mut self, cpu: &Cpu, row_ids: Option<&[u32]>, rows: usize, as_words: bool) {
        let mut tiles = std::mem::take(&mut self.tiles);
        tiles.take(cpu, self, row_ids, rows);
        if as_words {
            tiles.widen(cpu);
        }
        self.tiles = tiles;
    }

    /// Rows in tiles of sixteen.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn tiles(&self) -> &Tiles {
        &self.tiles
    }

    /// Prepares what [`Activations::row`] returns.
    /// On a given CPU all of a format's kernels use the same order, if not the plain one.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn arrange(&mut self, layout: Layout) {
        let chunks = self.rows * self.chunks;
        if !matches!(layout.order, Order::Plain) {
            let octets = layout.order.octets();
            self.interleaved.make(chunks * SUPER_BLOCK, |interleaved| {
                let to = interleaved.as_chunks_mut::<SUPER_BLOCK>().0.iter_mut();
                for (to, from) in to.zip(self.quants.as_chunks::<SUPER_BLOCK>().0) {
                    let from = from.as_chunks::<8>().0;
                    for (to, at) in to.as_chunks_mut::<8>().0.iter_mut().zip(octets) {
                        *to = from[at];
                    }
                }
            });
        }
        let len = chunks * layout.sums.per_super_block();
        match layout.sums {
            Sums::Sixteens => {}
            Sums::BlockPairs => self.block_pairs.make(len, |pairs| {
                for (to, from) in pairs.as_chunks_mut::<8>().0.iter_mut().zip(self.sums.as_chunks::<4>().0) {
                    let two = [from[0] + from[1], from[2] + from[3]];
                    *to = [two[0], two[1], two[0], two[1], two[0], two[1], two[0], two[1]];
                }
            }),
            Sums::Octets => self.octets.make(len, |octets| {
                for (to, from) in octets.as_chunks_mut::<2>().0.iter_mut().zip(self.quants.as_chunks::<8>().0)
                {
                    *to = [-32 * from.iter().map(|&quant| i16::from(quant)).sum::<i16>(); 2];
                }
            }),
        }
    }

    /// All quants of a row, their sums, and their scales, after [`Activations::arrange`].
    ///
    /// # Panics
    /// If the row doesn't exist, or [`Activations::arrange`] hasn't prepared the layout since the
    /// rows were converted.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn row(&self, layout: Layout, row: usize) -> (&[i8], &[i16], &[f32]) {
        assert!(row < self.rows, "row {row} of {} of activations", self.rows);
        let (quants, scales) = (self.chunks * SUPER_BLOCK, self.chunks * SUPER_BLOCK / self.form.block());
        let sums = self.chunks * layout.sums.per_super_block();
        (
            match layout.order {
                Order::Plain => &self.quants[row * quants..][..quants],
                Order::Interleaved256 | Order::Interleaved512 => self.interleaved.row(row, quants),
            },
            match layout.sums {
                Sums::Sixteens => &self.sums[row * sums..][..sums],
                Sums::BlockPairs => self.block_pairs.row(row, sums),
                Sums::Octets => self.octets.row(row, sums),
            },
            &self.scales[row * scales..][..scales],
        )
    }

    /// The number of chunks per row.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn chunks(&self) -> usize {
        self.chunks
    }

    /// Whether there is one scale per 256 quants.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn has_super_blocks(&self) -> bool {
        self.form == Form::SuperBlocks
    }

    /// A chunk of 64 floats.
    #[inline(always)]
    pub(crate) fn floats(&self, row: usize, chunk: usize) -> &[f32] {
        &self.floats[(row * self.chunks + chunk) * FLOAT_CHUNK..][..FLOAT_CHUNK]
    }

    /// A chunk of eight blocks: 256 quants, their sums of 16, and their scales of 32.
    #[inline(always)]
    pub(crate) fn blocks(&self, row: usize, chunk: usize) -> (&[i8], &[i16], &[f32]) {
        let at = row * self.chunks + chunk;
        (&self.quants[at * 256..][..256], &self.sums[at * 16..][..16], &self.scales[at * 8..][..8])
    }

    /// A super-block: 256 quants, their sums of 16, and their scale.
    #[inline(always)]
    pub(crate) fn super_block(&self, row: usize, chunk: usize) -> (&[i8], &[i16], f32) {
        let at = row * self.chunks + chunk;
        (&self.quants[at * 256..][..256], &self.sums[at * 16..][..16], self.scales[at])
    }
}

for_each_wide! {
    /// Quantizes a row in blocks of `block`; the padding becomes zero.
    fn quantize<W>(x: &[f32], block: usize, quants: &mut [i8], sums: &mut [i16], scales: &mut [f32]) {
        quants[x.len()..].fill(0);
        scales.fill(0.0);
        // SAFETY: this is compiled for the instruction set of `W`.
        unsafe {
            if block == BLOCK {
                quantize_blocks::<W, BLOCK>(x, quants, scales);
            } else {
                quantize_blocks::<W, SUPER_BLOCK>(x, quants, scales);
            }
        }
        for (sum, quants) in sums.iter_mut().zip(quants.as_chunks::<16>().0) {
            *sum = quants.iter().map(|&quant| i16::from(quant)).sum();
        }
    }
}

/// 1.5 * 2^23: adding it rounds a number to an integer, ties to even, in the low bits of the sum.
const ROUND: f32 = (3 << 22) as f32;

/// # Safety
/// The CPU has the instruction set of `W`.
#[inline(always)]
unsafe fn quantize_blocks<W: Wide, const N: usize>(x: &[f32], quants: &mut [i8], scales: &mut [f32]) {
    for ((x, quants), scale) in x.as_chunks::<N>().0.iter().zip(quants.as_chunks_mut::<N>().0).zip(scales) {
        // As integers, magnitudes have the same order, and NaN is the largest.
        let largest = f32::from_bits(x.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff)));
        let tiny = largest < 1e-30;
        *scale = if tiny { 0.0 } else { largest / 127.0 };
        let inverse = if tiny { 0.0 } else { 127.0 / largest };
        for (x, quants) in x.as_chunks::<LANES>().0.iter().zip(quants.as_chunks_mut::<LANES>().0) {
            // SAFETY: upheld by the caller; there are sixteen of each.
            unsafe {
                let scaled = W::load(x.as_ptr()).mul(W::splat(inverse));
                scaled.add(W::splat(ROUND)).store_bytes(quants.as_mut_ptr());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Isa, ThreadPool};

    impl Activations {
        /// The numbers that a row represents.
        pub(crate) fn numbers(&self, row: usize) -> Vec<f64> {
            if self.form == Form::Floats {
                let floats = &self.floats[row * self.chunks * FLOAT_CHUNK..][..self.width];
                return floats.iter().map(|&x| f64::from(x)).collect();
            }
            let (from, block) = (row * self.chunks * SUPER_BLOCK, self.form.block());
            let quants = &self.quants[from..][..self.width];
            let scales = &self.scales[from / block..];
            quants
                .chunks(block)
                .zip(scales)
                .flat_map(|(quants, &scale)| {
                    quants.iter().map(move |&quant| f64::from(quant) * f64::from(scale))
                })
                .collect()
        }
    }

    fn prepared(isa: Isa, format: Format, x: &[f32], width: usize) -> Activations {
        let mut activations = Activations::default();
        activations.prepare(&Cpu::new(isa, ThreadPool::new(2)), format, x, width);
        activations
    }

    proptest! {
        #[test]
        fn quants_are_the_nearest(x in proptest::collection::vec(-9f32..9.0, 1280), wide: bool) {
            let (format, block) = if wide { (Format::Q4_K, 256) } else { (Format::Q4_0, 32) };
            let scalar = prepared(Isa::SCALAR, format, &x, 256);
            for (row, x) in x.chunks(256).enumerate() {
                for (number, &x) in scalar.numbers(row).into_iter().zip(x) {
                    prop_assert!((number - f64::from(x)).abs() <= 9.0 / 127.0 * 0.500_001);
                }
            }
            for (sixteen, sum) in scalar.quants.chunks(16).zip(&*scalar.sums) {
                prop_assert_eq!(sixteen.iter().map(|&quant| i16::from(quant)).sum::<i16>(), *sum);
            }
            for (quants, block) in scalar.quants.chunks(block).zip(x.chunks(block)) {
                let largest = quants.iter().map(|quant| i32::from(*quant).abs()).max();
                prop_assert_eq!(largest, Some(127), "{:?}", block);
            }
            #[cfg(target_arch = "x86_64")]
            {
                let mut arranged = prepared(Isa::SCALAR, format, &x, 256);
                let layout = Layout { order: Order::Plain, sums: Sums::Octets };
                arranged.arrange(layout);
                for row in 0..arranged.rows() {
                    let (quants, sums, _) = arranged.row(layout, row);
                    for (octet, sums) in quants.chunks(8).zip(sums.chunks(2)) {
                        let too_much = octet.iter().map(|&quant| i32::from(quant) * 32).sum::<i32>();
                        prop_assert_eq!(sums.iter().map(|&sum| i32::from(sum)).collect::<Vec<_>>(), vec![-too_much; 2]);
                    }
                }
            }
            for isa in Isa::available() {
                let other = prepared(isa, format, &x, 256);
                prop_assert_eq!((&*other.quants, &*other.sums, &*other.scales), (&*scalar.quants, &*scalar.sums, &*scalar.scales));
            }
        }
    }

    #[test]
    fn blocks_of_nothing_and_of_what_is_no_number() {
        for isa in Isa::available() {
            let check = |first: f32, scale: fn(f32) -> bool, quants: i8| {
                let mut x = vec![0.0; 64];
                x[0] = first;
                let activations = prepared(isa, Format::Q8_0, &x, 64);
                assert!(scale(activations.scales[0]), "{first}: scale {}", activations.scales[0]);
                assert_eq!((activations.quants[0], activations.scales[1]), (quants, 0.0), "{first}");
                assert!(activations.quants[1..].iter().all(|&quant| quant == 0), "{first}");
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
        let cpu = Cpu::new(Isa::best(), ThreadPool::new(1));
        let mut x = Activations::default();
        x.prepare(&cpu, Format::Q8_0, &[1.0; 3 * 320], 320);
        x.prepare(&cpu, Format::Q8_0, &[2.0; 2 * 288], 288);
        assert_eq!(
            (x.rows(), x.width(), x.numbers(1)),
            (2, 288, prepared(cpu.isa, Format::Q8_0, &[2.0; 288], 288).numbers(0))
        );
        assert!(x.suits(Format::MXFP4) && !x.suits(Format::Q4_K) && !x.suits(Format::F32));
        // The padding of both rows is zero.
        assert!(x.quants[288..512].iter().chain(&x.quants[512 + 288..1024]).all(|&quant| quant == 0));
    }
}
