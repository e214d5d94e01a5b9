//! Reads numbers of keys and values from the cache, widened.
#![allow(unsafe_code)]

use half::f16;

use crate::format::BLOCK;
use crate::wide::{Wide, for_each_wide};

/// The numbers of all slots, in the cache's format.
#[derive(Clone, Copy)]
pub(crate) enum View<'a> {
    F32(F32<'a>),
    F16(F16<'a>),
    Q8_0(Q8_0<'a>),
}

/// Evaluates an expression with the [`KvSource`] of a [`View`].
macro_rules! with_source {
    ($view:expr, $source:ident => $body:expr) => {
        match $view {
            $crate::kv::View::F32($source) => $body,
            $crate::kv::View::F16($source) => $body,
            $crate::kv::View::Q8_0($source) => $body,
        }
    };
}
pub(crate) use with_source;

impl View<'_> {
    /// The address of a number, which needn't exist.
    #[inline(always)]
    pub(crate) fn place(self, at: usize) -> *const u8 {
        with_source!(self, source => source.start()).wrapping_add(at * (self.block_bytes() / BLOCK))
    }

    /// The size of a block in bytes, without its scale.
    #[inline(always)]
    pub(crate) fn block_bytes(self) -> usize {
        fn block_bytes<S: KvSource>(_: S) -> usize {
            S::BLOCK_BYTES
        }
        with_source!(self, source => block_bytes(source))
    }
}

/// Numbers that are widened when read.
pub(crate) trait KvSource: Copy {
    /// Bytes per block, without its scale.
    const BLOCK_BYTES: usize;
    /// Whether the data is close to the CPU, like a tile that was just widened.
    const NEAR: bool;

    /// The address of the first number, without a scale.
    fn start(self) -> *const u8;

    /// The number of numbers.
    fn len(self) -> usize;

    /// The [`BLOCK`] numbers from `at` on; for block formats, one block.
    ///
    /// # Safety
    /// They all exist, and the CPU has the instruction set of `W`.
    unsafe fn block<W: Wide>(self, at: usize) -> [W; 2];

    /// Reads the numbers from `at` on, at any position in blocks, into `out`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `W`.
    ///
    /// # Panics
    /// If they don't all exist.
    unsafe fn widen<W: Wide>(self, at: usize, out: &mut [f32]);
}

#[derive(Clone, Copy)]
pub(crate) struct F32<'a>(pub(crate) &'a [f32]);

#[derive(Clone, Copy)]
pub(crate) struct F16<'a>(pub(crate) &'a [u16]);

/// Numbers with one scale per [`BLOCK`].
#[derive(Clone, Copy)]
pub(crate) struct Q8_0<'a> {
    pub(super) scales: &'a [u16],
    pub(super) quants: &'a [i8],
}

impl KvSource for F32<'_> {
    const BLOCK_BYTES: usize = 4 * BLOCK;
    const NEAR: bool = true;

    #[inline(always)]
    fn start(self) -> *const u8 {
        self.0.as_ptr().cast()
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    unsafe fn block<W: Wide>(self, at: usize) -> [W; 2] {
        // SAFETY: upheld by the caller.
        unsafe {
            let from = self.0.as_ptr().add(at);
            [W::load(from), W::load(from.add(16))]
        }
    }

    #[inline(always)]
    unsafe fn widen<W: Wide>(self, at: usize, out: &mut [f32]) {
        out.copy_from_slice(&self.0[at..][..out.len()]);
    }
}

impl KvSource for F16<'_> {
    const BLOCK_BYTES: usize = 2 * BLOCK;
    const NEAR: bool = false;

    #[inline(always)]
    fn start(self) -> *const u8 {
        self.0.as_ptr().cast()
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    unsafe fn block<W: Wide>(self, at: usize) -> [W; 2] {
        // SAFETY: upheld by the caller.
        unsafe {
            let from = self.0.as_ptr().add(at);
            [W::load_f16(from), W::load_f16(from.add(16))]
        }
    }

    #[inline(always)]
    unsafe fn widen<W: Wide>(self, at: usize, out: &mut [f32]) {
        let (wholes, rest) = self.0[at..][..out.len()].as_chunks::<16>();
        let (outs, out_rest) = out.as_chunks_mut::<16>();
        for (x, out) in wholes.iter().zip(outs) {
            // SAFETY: upheld by the caller; sixteen are read and written.
            unsafe { W::load_f16(x.as_ptr()).store(out.as_mut_ptr()) };
        }
        if !rest.is_empty() {
            let (mut x, mut out) = ([0; 16], [0f32; 16]);
            x[..rest.len()].copy_from_slice(rest);
            // SAFETY: as above.
            unsafe { W::load_f16(x.as_ptr()).store(out.as_mut_ptr()) };
            out_rest.copy_from_slice(&out[..rest.len()]);
        }
    }
}

impl KvSource for Q8_0<'_> {
    const BLOCK_BYTES: usize = BLOCK;
    const NEAR: bool = false;

    #[inline(always)]
    fn start(self) -> *const u8 {
        self.quants.as_ptr().cast()
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.quants.len()
    }

    #[inline(always)]
    unsafe fn block<W: Wide>(self, at: usize) -> [W; 2] {
        // SAFETY: upheld by the caller.
        unsafe {
            let from = self.quants.as_ptr().add(at);
            let scale = W::splat_f16(self.scales.as_ptr().add(at / BLOCK));
            [W::load_i8(from).mul(scale), W::load_i8(from.add(16)).mul(scale)]
        }
    }

    #[inline(always)]
    unsafe fn widen<W: Wide>(self, at: usize, out: &mut [f32]) {
        assert!(at + out.len() <= self.quants.len() && self.scales.len() * BLOCK == self.quants.len());
        let mut done = 0;
        while done < out.len() {
            let now = at + done;
            let count = (BLOCK - now % BLOCK).min(out.len() - done);
            let out = &mut out[done..][..count];
            if count == BLOCK {
                // SAFETY: upheld by the caller; the block exists, and as many are written.
                unsafe {
                    let [low, high] = self.block::<W>(now);
                    low.store(out.as_mut_ptr());
                    high.store(out.as_mut_ptr().add(16));
                }
            } else {
                let scale = f16::from_bits(self.scales[now / BLOCK]).to_f32_const();
                for (out, &quant) in out.iter_mut().zip(&self.quants[now..]) {
                    *out = scale * f32::from(quant);
                }
            }
            done += count;
        }
    }
}

for_each_wide! {
    /// Reads the numbers from `at` on into `out`.
    #[inline(never)]
    pub(crate) fn widen<W>(numbers: View, at: usize, out: &mut [f32]) {
        // SAFETY: this is compiled for the instruction set of `W`.
        unsafe { with_source!(numbers, source => source.widen::<W>(at, out)) }
    }
}
