//! Products of weight matrices with rows of activations.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod blocked;
#[cfg(target_arch = "x86_64")]
mod few;
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
#[cfg(target_arch = "x86_64")]
use crate::quant::k;
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

/// y[t, o] = w[o] . x[t], for `y` of `[x.rows(), w.rows()]`.
///
/// # Panics
/// If the shapes differ, or `x` was prepared for another form of weights.
pub fn matmul(cpu: &Cpu, w: Rows, x: &mut Activations, y: &mut [f32]) {
    assert_eq!(y.len(), x.rows() * w.rows(), "outputs of a matmul");
    let rows = Picks::All(x.rows());
    multiply(cpu, w, x, rows, y);
}

/// For each pick (from, to): `y[to] = w x[from]`, with `y` of `[.., w.rows()]`. Other rows of `y` stay; of picks with
/// the same `to` the last counts.
///
/// # Panics
/// If the shapes differ, a pick is out of range, or `x` was prepared for another form of weights.
pub fn matmul_picked(cpu: &Cpu, w: Rows, x: &mut Activations, picks: &[(u32, u32)], y: &mut [f32]) {
    let out = w.rows();
    let rows = y.len().checked_div(out).unwrap_or(0);
    assert_eq!(y.len(), rows * out, "outputs of a matmul in rows of {out}");
    for &(from, to) in picks {
        assert!((from as usize) < x.rows(), "row {from} of {} of activations", x.rows());
        assert!(out == 0 || (to as usize) < rows, "row {to} of {rows} of outputs");
    }
    multiply(cpu, w, x, Picks::Some(picks), y);
}

/// Which row of activations makes which row of outputs.
#[derive(Clone, Copy)]
enum Picks<'a> {
    All(usize),
    Some(&'a [(u32, u32)]),
}

impl Picks<'_> {
    fn len(self) -> usize {
        match self {
            Picks::All(len) => len,
            Picks::Some(picks) => picks.len(),
        }
    }

    /// From, to.
    #[inline(always)]
    fn get(self, i: usize) -> (usize, usize) {
        match self {
            Picks::All(_) => (i, i),
            Picks::Some(picks) => (picks[i].0 as usize, picks[i].1 as usize),
        }
    }
}

/// Bytes of weights in a task: few enough that threads finish together and that they stay in the cache for all tokens.
const TASK_BYTES: usize = 32 << 10;
/// Rows of activations that are multiplied with a panel at once: few enough that they stay in the innermost cache.
const TILE: usize = 16;
/// Rows of weights that are worked through side by side where there are few rows of activations, so that one's sums
/// don't wait for themselves.
const MAX_GROUP: usize = 4;

/// The parts of a product that all tasks share.
#[derive(Clone, Copy)]
struct Product<'a> {
    w: &'a [u8],
    row_bytes: usize,
    out: usize,
    x: &'a Activations,
    picks: Picks<'a>,
    y: &'a Disjoint<'a, f32>,
}

fn multiply(cpu: &Cpu, w: Rows, x: &mut Activations, picks: Picks, y: &mut [f32]) {
    assert!(x.suits(w.format), "activations were prepared for other weights than {}", w.format.name());
    assert_eq!(x.width(), w.width, "width of activations and weights");
    let out = w.rows();
    if out == 0 || picks.len() == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if blocked::pays(cpu.isa.level(), w.format, picks.len()) {
        return blocked::multiply(cpu, w, x, picks, &Disjoint::new(y));
    }
    let x = &*x;
    let row_bytes = w.bytes.len() / out;
    let chunk = (TASK_BYTES / row_bytes).clamp(1, 64);
    let product = Product { w: w.bytes, row_bytes, out, x, picks, y: &Disjoint::new(y) };
    cpu.threads.run(out.div_ceil(chunk), &|task| {
        let rows = task * chunk..((task + 1) * chunk).min(out);
        // SAFETY: plain Rust runs anywhere, and the value of `isa` proves the rest. Tasks have different rows of weights.
        unsafe {
            match (cpu.isa.level(), w.format) {
                (Level::Scalar, _) => with_codec!(w.format, scalar, C => some_rows::<C>(product, rows)),
                #[cfg(target_arch = "x86_64")]
                (Level::Avx512 | Level::Amx, Format::Q4_K) => few::some_rows::<k::Q4_K>(product, rows),
                #[cfg(target_arch = "x86_64")]
                (Level::Avx512 | Level::Amx, Format::Q5_K) => few::some_rows::<k::Q5_K>(product, rows),
                #[cfg(target_arch = "x86_64")]
                (Level::Avx512 | Level::Amx, Format::Q6_K) => few::some_rows::<k::Q6_K>(product, rows),
                #[cfg(target_arch = "x86_64")]
                (_, _) => with_codec!(w.format, avx2, C => some_rows_avx2::<C>(product, rows)),
            }
        }
    });
}

/// Asks for memory that is read soon, if there is any: the CPU foresees one stream, not those of several rows.
#[inline(always)]
fn fetch(at: *const u8, bytes: usize) {
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
unsafe fn some_rows_avx2<C: Codec>(p: Product, rows: std::ops::Range<usize>) {
    // SAFETY: as the caller vouches.
    unsafe { some_rows::<C>(p, rows) }
}

/// # Safety
/// The codec's instruction set is there, and no other task has these rows of weights.
#[inline(always)]
unsafe fn some_rows<C: Codec>(p: Product, rows: std::ops::Range<usize>) {
    let mut lanes = [[0.0; LANES]; TILE];
    let mut padded = [0; MAX_BYTES]; // The last panels of all rows are equally long, so what follows them stays zero.
    for first in (0..p.picks.len()).step_by(TILE) {
        let tile = TILE.min(p.picks.len() - first);
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
                        // The rows that come next.
                        fetch(bytes.as_ptr().wrapping_add(group * p.row_bytes), len);
                    }
                    let bytes = whole::<C>(bytes, &mut padded);
                    // SAFETY: as the caller vouches.
                    let panel = unsafe { C::unpack(bytes) };
                    for (i, lanes) in lanes.iter_mut().enumerate() {
                        let (from, _) = p.picks.get(first + i);
                        // SAFETY: as the caller vouches.
                        unsafe { C::dot(&panel, p.x, from, index, lanes) };
                    }
                }
            }
            for (row, lanes) in lanes.chunks_exact(tile).take(group).enumerate() {
                for (i, &lanes) in lanes.iter().enumerate() {
                    let (_, to) = p.picks.get(first + i);
                    // SAFETY: no other task writes this column of outputs.
                    unsafe { p.y.slice(to * p.out + start + row, 1)[0] = lanes::sum(lanes) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
