//! The peak rate of byte products with NEON.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::aarch64::*;
use std::hint::black_box;

use crate::isa::Level;
use crate::quant::neon::{Dot, Sdot, Smull};

pub(super) const STEPS: usize = 256;
/// Independent sums.
pub(super) const SUMS: usize = 12;

/// # Safety
/// The CPU has that instruction set.
pub(super) unsafe fn round(level: Level) {
    match level {
        Level::DotProd => dotprod(),
        _ => products::<Smull>(),
    }
}

/// # Safety
/// As [`round`].
#[target_feature(enable = "dotprod")]
unsafe fn dotprod() {
    products::<Sdot>();
}

/// # Safety
/// The CPU has the features of `D`.
#[inline(always)]
unsafe fn products<D: Dot>() {
    let x = black_box([1i8; 16 * SUMS]);
    let mut sums = [D::zero(); SUMS];
    for _ in 0..STEPS {
        // Hide the operands: the compiler would merge products that are the same.
        let w = vld1q_s8(black_box(&x).as_ptr());
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = D::add(*sum, w, vld1q_s8(x.as_ptr().add(16 * i)));
        }
    }
    let mut all = vdupq_n_s32(0);
    for sum in sums {
        all = vaddq_s32(all, D::quads(sum));
    }
    black_box(vaddvq_s32(all));
}
