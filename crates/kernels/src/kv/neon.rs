//! Rounds floats to half precision with NEON.

use std::arch::aarch64::*;

use super::{MAX_F16, narrowed};

/// As [`narrowed`], elementwise.
pub(super) fn narrow(x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len());
    let (wholes, rest) = x.as_chunks::<4>();
    let (outs, out_rest) = out.as_chunks_mut::<4>();
    for (x, out) in wholes.iter().zip(outs) {
        // SAFETY: NEON is part of the target, and four numbers are read and written.
        unsafe {
            // Given a NaN and a limit these return the NaN.
            let x = vmaxq_f32(vld1q_f32(x.as_ptr()), vdupq_n_f32(-MAX_F16));
            let half = vcvt_f16_f32(vminq_f32(x, vdupq_n_f32(MAX_F16)));
            vst1_u16(out.as_mut_ptr(), vreinterpret_u16_f16(half));
        }
    }
    for (out, &x) in out_rest.iter_mut().zip(rest) {
        *out = narrowed(x);
    }
}
