//! The exponential and functions based on it.
//! They don't call a library: every instruction set runs exactly these operations, so all agree bit
//! for bit, and loops over them vectorize.

use std::f32::consts::{LN_2, LOG2_E, SQRT_2};

/// The part of ln 2 that f32's `LN_2` lacks.
const LN_2_REST: f32 = (std::f64::consts::LN_2 - LN_2 as f64) as f32;

/// Adding it rounds a float (below 2^22) to an integer, which is then in the low bits.
const ROUND: f32 = 1.5 * (1 << 23) as f32;

/// Arguments below give 0, since 2^-126 is the least normal float.
const MIN: f32 = -126.0 * LN_2;
/// Arguments above give infinity, since 2^127 is the greatest power of two.
const MAX: f32 = 127.5 * LN_2;

/// e^x with a relative error of about 1e-7: e^x = 2^n e^r with |r| <= ln 2 / 2 and the Taylor
/// series of e^r.
/// Zero below -87.3, infinite above 88.3.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let rounded = x.mul_add(LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = n.mul_add(-LN_2_REST, n.mul_add(-LN_2, x));
    let mut series = 1.0 / 5040.0;
    for term in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        series = r.mul_add(series, term);
    }
    let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(1f32.to_bits()));
    let y = series * power;
    let y = if x < MIN { 0.0 } else { y };
    if x > MAX { f32::INFINITY } else { y }
}

/// 1 / (1 + e^-x)
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// x sigmoid(x)
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// ln(1 + e^x), which equals x in f32's precision for x > 20.
#[inline(always)]
pub(crate) fn softplus(x: f32) -> f32 {
    if x > 20.0 {
        return x;
    }
    let e = exp(x);
    let sum = 1.0 + e;
    // The sum lost the low digits of e; the quotient compensates.
    if sum == 1.0 { e } else { ln(sum) * (e / (sum - 1.0)) }
}

/// The natural logarithm of a normal x >= 1: x = 2^n m with m around 1, and ln m = 2
/// artanh((m-1)/(m+1)).
#[inline(always)]
fn ln(x: f32) -> f32 {
    let exponent = (x.to_bits() >> 23) as i32 - 127;
    let m = f32::from_bits((x.to_bits() & 0x7f_ffff) | 1f32.to_bits());
    let (n, m) = if m > SQRT_2 { (exponent + 1, m * 0.5) } else { (exponent, m) };
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut series = 1.0 / 11.0;
    for term in [1.0 / 9.0, 1.0 / 7.0, 0.2, 1.0 / 3.0, 1.0] {
        series = z.mul_add(series, term);
    }
    (n as f32).mul_add(LN_2, 2.0 * s * series)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that `f` has a relative error of at most `tolerance` from `from` to `to`.
    fn check(f: fn(f32) -> f32, exact: fn(f64) -> f64, from: f32, to: f32, tolerance: f64) {
        let steps = 200_000;
        for step in 0..=steps {
            let x = from + (to - from) * (step as f32 / steps as f32);
            let (y, exact) = (f64::from(f(x)), exact(f64::from(x)));
            assert!((y - exact).abs() <= tolerance * exact.abs(), "at {x}: {y} for {exact}");
        }
    }

    #[test]
    fn values_are_those_of_f64() {
        check(exp, f64::exp, -87.3, 88.3, 2e-7);
        check(exp, f64::exp, -1.0, 1.0, 1.5e-7);
        check(sigmoid, |x| 1.0 / (1.0 + (-x).exp()), -87.0, 87.0, 4e-7);
        check(silu, |x| x / (1.0 + (-x).exp()), -87.0, 87.0, 5e-7);
        check(softplus, |x| x.exp().ln_1p(), -87.0, 100.0, 4e-7);
        check(softplus, |x| x.exp().ln_1p(), -1.0, 1.0, 4e-7);
    }

    #[test]
    fn ends() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-90.0), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(89.0), f32::INFINITY);
        assert_eq!(exp(f32::MAX), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(sigmoid(f32::NEG_INFINITY), 0.0);
        assert_eq!(sigmoid(200.0), 1.0);
        assert_eq!(silu(-200.0), 0.0);
        assert_eq!(silu(200.0), 200.0);
        assert_eq!(softplus(f32::INFINITY), f32::INFINITY);
        assert_eq!(softplus(-200.0), 0.0);
        assert_eq!(softplus(20.5), 20.5);
    }
}
