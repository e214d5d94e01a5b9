//! Products of weight matrices with rows of activations.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod blocked;
#[cfg(target_arch = "x86_64")]
mod few;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod panel;
#[cfg(target_arch = "x86_64")]
mod side_by_side;
#[cfg(target_arch = "x86_64")]
mod tiles;
#[cfg(target_arch = "x86_64")]
mod vector;
#[cfg(target_arch = "x86_64")]
pub(crate) use tiles::{ROUND_OPERATIONS as TILE_ROUND_OPERATIONS, round as tile_round};
#[cfg(target_arch = "x86_64")]
pub(crate) use vector::{Avx2, Avx512, AvxVnni, Vector};

use crate::activations::Activations;
use crate::isa::Level;
use crate::lanes::{self, LANES};
use crate::quant::{Codec, MAX_BYTES, whole, with_codec};
use crate::threads::Disjoint;
use crate::{Cpu, Format};

/// A matrix of weights `[out, width]`.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// The format of the numbers.
    pub format: Format,
    /// The rows, one after the other, at any address.
    pub bytes: &'a [u8],
    /// The numbers in a row: whole blocks.
    pub width: usize,
}

impl Rows<'_> {
    /// The number of rows.
    ///
    /// # Panics
    /// Unless the bytes are whole rows.
    pub fn rows(&self) -> usize {
        let row =
            self.format.row_bytes(self.width).filter(|&row| row > 0 && self.bytes.len().is_multiple_of(row));
        match row {
            Some(row) => self.bytes.len() / row,
            None => panic!(
                "{} bytes as rows of {} numbers in {}",
                self.bytes.len(),
                self.width,
                self.format.name()
            ),
        }
    }
}

/// A matrix of weights times rows of activations.
pub struct Product<'a> {
    w: Rows<'a>,
    /// Rows of weights.
    out: usize,
    /// The rows of activations; `None` = all.
    named: Option<&'a [u32]>,
    y: Disjoint<'a, f32>,
    /// The length of `y`.
    len: usize,
}

impl<'a> Product<'a> {
    /// `y[i, o] = w[o] . x[i]`, for `y` of `[x.rows(), w.rows()]`.
    pub fn new(w: Rows<'a>, y: &'a mut [f32]) -> Self {
        Product { w, out: w.rows(), named: None, len: y.len(), y: Disjoint::new(y) }
    }

    /// `y[i, o] = w[o] . x[rows[i]]`, for `y` of `[rows, w.rows()]`.
    pub fn of_rows(w: Rows<'a>, rows: &'a [u32], y: &'a mut [f32]) -> Self {
        Product { w, out: w.rows(), named: Some(rows), len: y.len(), y: Disjoint::new(y) }
    }
}

/// Computes some products with the same activations, all at once.
///
/// # Panics
/// If shapes differ, a row is out of range, or `x` was prepared for another form of weights.
pub fn matmul(cpu: &Cpu, x: &mut Activations, products: &mut [Product]) {
    // Nobody else may write these outputs meanwhile; among themselves they have none in common.
    let products = &*products;
    for product in products {
        let Product { w, out, named, len, .. } = product;
        assert!(x.suits(w.format), "activations were prepared for other weights than {}", w.format.name());
        assert_eq!(x.width(), w.width, "width of activations and weights");
        if let Some(rows) = named {
            let most = rows.iter().copied().max().map_or(0, |row| row as usize + 1);
            assert!(most <= x.rows(), "row {} of {} of activations", most - 1, x.rows());
        }
        assert_eq!(*len, product.tokens(x) * out, "outputs of a matmul");
    }
    #[cfg(target_arch = "x86_64")]
    for product in products {
        if product.is_blocked(cpu, x) {
            blocked::multiply(cpu, product, x);
        } else {
            few::arrange(cpu.isa.level(), product.w.format, product.out, product.tokens(x), x);
        }
    }
    #[cfg(target_arch = "aarch64")]
    for product in products {
        if product.is_blocked(cpu, x) {
            neon::multiply(cpu, product, x);
        }
    }
    few_rows(cpu, x, products);
}

/// Bytes of weights in a task: few enough that threads finish together and that they stay in the
/// cache for all tokens.
const TASK_BYTES: usize = 32 << 10;
/// Rows of activations that are multiplied with a panel at once: few enough that they stay in the
/// innermost cache.
const TILE: usize = 16;
/// Rows of weights that are worked through side by side where there are few rows of activations, so
/// that one's sums don't wait for themselves.
const MAX_GROUP: usize = 4;
/// Rows of weights that AVX-512 turns, where there are several rows of activations: one for each
/// lane.
const TURNED: usize = 16;

/// What a task of a product with few rows works with.
#[derive(Clone, Copy)]
struct Few<'a> {
    w: &'a [u8],
    row_bytes: usize,
    out: usize,
    x: &'a Activations,
    /// As the product's.
    named: Option<&'a [u32]>,
    /// Rows of activations of the product that come before the task's.
    before: usize,
    tokens: usize,
    y: &'a Disjoint<'a, f32>,
    /// Where in a row of `y` the first number goes.
    column: usize,
    /// The numbers from a row of `y` to the next.
    stride: usize,
}

impl Few<'_> {
    /// Which row of activations the task's row `token` is.
    #[inline(always)]
    fn row_of(&self, token: usize) -> usize {
        let at = self.before + token;
        self.named.map_or(at, |rows| rows[at] as usize)
    }

    /// Where in `y` the product of a row of activations and of one of weights goes.
    #[inline(always)]
    fn at(&self, token: usize, row: usize) -> usize {
        (self.before + token) * self.stride + self.column + row
    }
}

/// What a thread reads next is asked for in the order of its addresses, because neighbours come
/// faster.
/// The next task's rows most often follow this one's.
struct Ahead {
    next: *const u8,
}

impl Ahead {
    /// How far ahead of what is read, at least.
    const DISTANCE: usize = 4 << 10;

    /// For rows of which up to [`MAX_GROUP`] are worked through side by side.
    #[inline(always)]
    fn new(p: &Few, rows: &std::ops::Range<usize>) -> Self {
        // The last of the rows is read from its start on, when little of the first was.
        let distance = Self::DISTANCE.max(MAX_GROUP * p.row_bytes);
        Ahead { next: p.w.as_ptr().wrapping_add(rows.start * p.row_bytes + distance) }
    }

    /// Asks for as much as is read now.
    #[inline(always)]
    fn fetch(&mut self, bytes: usize) {
        fetch(self.next, bytes);
        self.next = self.next.wrapping_add(bytes);
    }
}

impl Product<'_> {
    /// The rows of activations.
    fn tokens(&self, x: &Activations) -> usize {
        self.named.map_or(x.rows(), <[u32]>::len)
    }

    fn is_blocked(&self, cpu: &Cpu, x: &Activations) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.out > 0 && blocked::pays(cpu.isa.level(), self.w.format, self.tokens(x));
        #[cfg(target_arch = "aarch64")]
        return self.out > 0 && neon::pays(cpu.isa.level(), self.w.format, self.tokens(x));
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        return false;
    }

    /// The rows of weights in a task, where there are few rows of activations: whole groups, also
    /// of those that are turned.
    fn chunk(&self) -> usize {
        let rows = TASK_BYTES * self.out / self.w.bytes.len().max(1);
        rows.next_multiple_of(TURNED).clamp(TURNED, 64)
    }

    fn tasks(&self, cpu: &Cpu, x: &Activations) -> usize {
        if self.tokens(x) == 0 || self.is_blocked(cpu, x) { 0 } else { self.out.div_ceil(self.chunk()) }
    }
}

/// The products whose weights are used as they lie, in one go.
fn few_rows(cpu: &Cpu, x: &Activations, products: &[Product]) {
    let tasks = products.iter().map(|product| product.tasks(cpu, x)).sum();
    cpu.threads.run(tasks, &|task| {
        let mut task = task;
        for product in products {
            let tasks = product.tasks(cpu, x);
            if task >= tasks {
                task -= tasks;
                continue;
            }
            let Product { w, out, named, ref y, .. } = *product;
            let chunk = product.chunk();
            let (row_bytes, tokens) = (w.bytes.len() / out, product.tokens(x));
            let few =
                Few { w: w.bytes, row_bytes, out, x, named, before: 0, tokens, y, column: 0, stride: out };
            let rows = task * chunk..((task + 1) * chunk).min(out);
            // SAFETY: plain Rust runs anywhere, and the value of `isa` proves the rest.
            // Tasks have different rows of weights.
            unsafe {
                match (cpu.isa.level(), w.format) {
                    (Level::Scalar, _) => with_codec!(w.format, scalar, C => some_rows::<C>(few, rows)),
                    #[cfg(target_arch = "x86_64")]
                    (Level::Avx512 | Level::Amx, _) if few::some_rows(few, w.format, rows.clone()) => {}
                    #[cfg(target_arch = "x86_64")]
                    (Level::Avx2 | Level::AvxVnni, _)
                        if few::avx2::some_rows(few, w.format, rows.clone()) => {}
                    #[cfg(target_arch = "x86_64")]
                    (_, _) => with_codec!(w.format, avx2, C => some_rows_avx2::<C>(few, rows)),
                    #[cfg(target_arch = "aarch64")]
                    (Level::Neon, _) => with_codec!(w.format, neon, C => some_rows::<C>(few, rows)),
                    #[cfg(target_arch = "aarch64")]
                    (Level::DotProd, _) => {
                        with_codec!(w.format, dotprod, C => neon::some_rows::<C>(few, rows))
                    }
                }
            }
            return;
        }
    });
}

/// Asks for memory that is read soon, if there is any: the CPU foresees long streams, not those of
/// a few rows each.
#[inline(always)]
pub(crate) fn fetch(at: *const u8, bytes: usize) {
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, bytes);
    #[cfg(target_arch = "x86_64")]
    for line in (0..bytes).step_by(64) {
        // SAFETY: an address that isn't ours is ignored.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                at.wrapping_add(line).cast(),
            );
        };
    }
}

/// # Safety
/// As [`some_rows`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn some_rows_avx2<C: Codec>(p: Few, rows: std::ops::Range<usize>) {
    // SAFETY: as the caller vouches.
    unsafe { some_rows::<C>(p, rows) }
}

/// # Safety
/// The codec's instruction set is there, and no other task has these rows of weights.
#[inline(always)]
unsafe fn some_rows<C: Codec>(p: Few, rows: std::ops::Range<usize>) {
    let mut lanes = [[0.0; LANES]; TILE];
    let mut padded = [0; MAX_BYTES]; // The last panels of all rows are equally long, so what follows them stays zero.
    let mut ahead = Ahead::new(&p, &rows);
    for first in (0..p.tokens).step_by(TILE) {
        let tile = TILE.min(p.tokens - first);
        let group = (TILE / tile).min(MAX_GROUP);
        for start in rows.clone().step_by(group) {
            let group = group.min(rows.end - start);
            lanes[..group * tile].fill([0.0; LANES]);
            let w = &p.w[start * p.row_bytes..][..group * p.row_bytes];
            for (index, at) in (0..p.row_bytes).step_by(C::BYTES).enumerate() {
                let len = C::BYTES.min(p.row_bytes - at);
                for (row, lanes) in lanes.chunks_exact_mut(tile).take(group).enumerate() {
                    let bytes = &w[row * p.row_bytes + at..][..len];
                    if first == 0 {
                        ahead.fetch(len);
                    }
                    let bytes = whole::<C>(bytes, &mut padded);
                    // SAFETY: as the caller vouches.
                    let panel = unsafe { C::unpack(bytes) };
                    // Apart, so that a panel that is used once stays in registers.
                    if let [lanes] = lanes {
                        // SAFETY: as the caller vouches.
                        unsafe { C::dot(&panel, p.x, p.row_of(first), index, lanes) };
                        continue;
                    }
                    for (i, lanes) in lanes.iter_mut().enumerate() {
                        let from = p.row_of(first + i);
                        // SAFETY: as the caller vouches.
                        unsafe { C::dot(&panel, p.x, from, index, lanes) };
                    }
                }
            }
            for (row, lanes) in lanes.chunks_exact(tile).take(group).enumerate() {
                for (i, &lanes) in lanes.iter().enumerate() {
                    // SAFETY: no other task writes this column of outputs.
                    unsafe { p.y.slice(p.at(first + i, start + row), 1)[0] = lanes::sum(lanes) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
