//! Numbers of keys and values, widened where they lie.
#![allow(unsafe_code)]

use half::f16;

use super::RUN;
use crate::wide::{Wide, for_each_wide};

/// The numbers of all slots, as they are kept.
#[derive(Clone, Copy)]
pub(crate) enum View<'a> {
    F32(F32<'a>),
    F16(F16<'a>),
    Q8_0(Q8_0<'a>),
}

impl View<'_> {
    /// Where a number lies; it needn't be there.
    #[inline(always)]
    pub(crate) fn place(self, at: usize) -> *const u8 {
        match self {
            View::F32(F32(numbers)) => numbers.as_ptr().wrapping_add(at).cast(),
            View::F16(F16(numbers)) => numbers.as_ptr().wrapping_add(at).cast(),
            View::Q8_0(Q8_0 { codes, .. }) => codes.as_ptr().wrapping_add(at).cast(),
        }
    }

    /// The bytes of a run, without its scale.
    #[inline(always)]
    pub(crate) fn run_bytes(self) -> usize {
        match self {
            View::F32(_) => F32::RUN_BYTES,
            View::F16(_) => F16::RUN_BYTES,
            View::Q8_0(_) => Q8_0::RUN_BYTES,
        }
    }
}

/// Numbers that can be widened where they lie.
pub(crate) trait Source: Copy {
    /// The bytes of a run, without its scale.
    const RUN_BYTES: usize;
    /// Whether what is read is near, as a tile that was widened is.
    const NEAR: bool;

    /// The number of numbers.
    fn len(self) -> usize;

    /// The [`RUN`] numbers from `at` on: a run, if there are runs.
    ///
    /// # Safety
    /// They are all there, and the CPU has the instruction set of `W`.
    unsafe fn run<W: Wide>(self, at: usize) -> [W; 2];

    /// `out` becomes the numbers from `at` on, which may lie anywhere in runs.
    ///
    /// # Safety
    /// The CPU has the instruction set of `W`.
    ///
    /// # Panics
    /// If they are not all there.
    unsafe fn widen<W: Wide>(self, at: usize, out: &mut [f32]);
}

#[derive(Clone, Copy)]
pub(crate) struct F32<'a>(pub(crate) &'a [f32]);

#[derive(Clone, Copy)]
pub(crate) struct F16<'a>(pub(crate) &'a [u16]);

/// Numbers of which each [`RUN`] share a scale.
#[derive(Clone, Copy)]
pub(crate) struct Q8_0<'a> {
    pub(super) scales: &'a [u16],
    pub(super) codes: &'a [i8],
}

impl Source for F32<'_> {
    const RUN_BYTES: usize = 4 * RUN;
    const NEAR: bool = true;

    #[inline(always)]
    fn len(self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    unsafe fn run<W: Wide>(self, at: usize) -> [W; 2] {
        // SAFETY: the caller's.
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

impl Source for F16<'_> {
    const RUN_BYTES: usize = 2 * RUN;
    const NEAR: bool = false;

    #[inline(always)]
    fn len(self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    unsafe fn run<W: Wide>(self, at: usize) -> [W; 2] {
        // SAFETY: the caller's.
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
            // SAFETY: the caller's; sixteen are read and written.
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

impl Source for Q8_0<'_> {
    const RUN_BYTES: usize = RUN;
    const NEAR: bool = false;

    #[inline(always)]
    fn len(self) -> usize {
        self.codes.len()
    }

    #[inline(always)]
    unsafe fn run<W: Wide>(self, at: usize) -> [W; 2] {
        // SAFETY: the caller's.
        unsafe {
            let from = self.codes.as_ptr().add(at);
            let scale = W::splat_f16(self.scales.as_ptr().add(at / RUN));
            [W::load_i8(from).mul(scale), W::load_i8(from.add(16)).mul(scale)]
        }
    }

    #[inline(always)]
    unsafe fn widen<W: Wide>(self, at: usize, out: &mut [f32]) {
        assert!(at + out.len() <= self.codes.len() && self.scales.len() * RUN == self.codes.len());
        let mut done = 0;
        while done < out.len() {
            let now = at + done;
            let count = (RUN - now % RUN).min(out.len() - done);
            let out = &mut out[done..][..count];
            if count == RUN {
                // SAFETY: the caller's; the run is there, and as many are written.
                unsafe {
                    let [low, high] = self.run::<W>(now);
                    low.store(out.as_mut_ptr());
                    high.store(out.as_mut_ptr().add(16));
                }
            } else {
                let scale = f16::from_bits(self.scales[now / RUN]).to_f32_const();
                for (out, &code) in out.iter_mut().zip(&self.codes[now..]) {
                    *out = scale * f32::from(code);
                }
            }
            done += count;
        }
    }
}

for_each_wide! {
    /// `out` becomes the numbers from `at` on.
    #[inline(never)]
    pub(crate) fn widen<W>(numbers: View, at: usize, out: &mut [f32]) {
        // SAFETY: this is compiled for the instruction set of `W`.
        unsafe {
            match numbers {
                View::F32(numbers) => numbers.widen::<W>(at, out),
                View::F16(numbers) => numbers.widen::<W>(at, out),
                View::Q8_0(numbers) => numbers.widen::<W>(at, out),
            }
        }
    }
}
