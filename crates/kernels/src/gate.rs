//! Activations of gated feed-forward blocks and output gates.

use crate::Cpu;
use crate::elementwise::over_pieces;
use crate::exp::{exp, sigmoid, silu};
use crate::isa::for_each_isa;

/// The activation of a gate `g`, applied to `u`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `silu(g) u`: SwiGLU.
    Silu,
    /// `gelu(g) u` with the tanh form of GELU: GeGLU.
    GeluTanh,
    /// `sigmoid(g) u`.
    Sigmoid,
    /// `g sigmoid(1.702 g) (1 + u)` with g at most 7 and u within 7 of zero: the SwiGLU of gpt-oss.
    ClampedSwiglu,
}

/// `y = act(gate) up`, elementwise.
///
/// # Panics
/// If the lengths differ.
pub fn gated(cpu: &Cpu, gate: &[f32], up: &[f32], y: &mut [f32], kind: Gate) {
    assert!(gate.len() == y.len() && up.len() == y.len(), "gated: {}, {}, {}", gate.len(), up.len(), y.len());
    over_pieces(cpu, y, 1, &|range, y| gate_all(cpu.isa, &gate[range.clone()], &up[range], y, kind));
}

/// `x = max(x, 0)²`, elementwise.
pub fn relu_squared(cpu: &Cpu, x: &mut [f32]) {
    over_pieces(cpu, x, 1, &|_, x| square_all(cpu.isa, x));
}

/// `x = gelu(x)`, elementwise: the exact form, by the error function.
/// Source: Hendrycks and Gimpel 2016, <https://arxiv.org/abs/1606.08415>.
pub fn gelu_erf(cpu: &Cpu, x: &mut [f32]) {
    over_pieces(cpu, x, 1, &|_, x| gelu_erf_all(cpu.isa, x));
}

for_each_isa! {
    fn gelu_erf_all(x: &mut [f32]) {
        for x in x {
            *x *= normal(*x);
        }
    }

    fn square_all(x: &mut [f32]) {
        for x in x {
            let positive = if *x > 0.0 { *x } else { 0.0 };
            *x = positive * positive;
        }
    }

    fn gate_all(gate: &[f32], up: &[f32], y: &mut [f32], kind: Gate) {
        match kind {
            Gate::Silu => zip(gate, up, y, |g, u| silu(g) * u),
            Gate::GeluTanh => zip(gate, up, y, |g, u| gelu(g) * u),
            Gate::Sigmoid => zip(gate, up, y, |g, u| sigmoid(g) * u),
            Gate::ClampedSwiglu => zip(gate, up, y, |g, u| {
                let (g, u) = (if g > 7.0 { 7.0 } else { g }, u.clamp(-7.0, 7.0));
                g * sigmoid(1.702 * g) * (1.0 + u)
            }),
        }
    }
}

#[inline(always)]
fn zip(gate: &[f32], up: &[f32], y: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for ((y, &gate), &up) in y.iter_mut().zip(gate).zip(up) {
        *y = f(gate, up);
    }
}

/// `0.5 x (1 + tanh t)` with `t = sqrt(2/π) (x + 0.044715 x³)`, which is `x sigmoid(2t)`.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    const TWO_SQRT_2_OVER_PI: f32 = 2.0 * 0.797_884_6;
    x * sigmoid(TWO_SQRT_2_OVER_PI * x * (0.044_715 * x * x + 1.0))
}

/// The cumulative normal distribution at `x`, `(1 + erf(x / √2)) / 2`, with an error of about 1e-7.
/// Source: Abramowitz and Stegun 1964, formula 7.1.26.
#[inline(always)]
fn normal(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / 0.327_591_1f32.mul_add(z, 1.0);
    let mut series = 1.061_405_4;
    for term in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        series = t.mul_add(series, term);
    }
    let tail = 0.5 * t * series * exp(-z * z);
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_rows;

    fn check(kind: Gate, exact: fn(f64, f64) -> f64) {
        let width = 100;
        check_rows(
            2 * width,
            width,
            2e-6,
            |cpu, _, x, y| {
                let half = |second: usize| -> Vec<f32> {
                    let halves = x.chunks_exact(width).skip(second).step_by(2);
                    halves.flatten().map(|x| x * 10.0).collect()
                };
                gated(cpu, &half(0), &half(1), y, kind);
            },
            |_, x| {
                let (gate, up) = x.split_at(width);
                gate.iter().zip(up).map(|(&g, &u)| exact(f64::from(g * 10.0), f64::from(u * 10.0))).collect()
            },
        );
    }

    #[test]
    fn gates_are_their_formulas() {
        fn sigmoid(x: f64) -> f64 {
            1.0 / (1.0 + (-x).exp())
        }
        check(Gate::Silu, |g, u| g * sigmoid(g) * u);
        check(Gate::Sigmoid, |g, u| sigmoid(g) * u);
        check(Gate::GeluTanh, |g, u| {
            let t = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g.powi(3));
            0.5 * g * (1.0 + t.tanh()) * u
        });
        check(Gate::ClampedSwiglu, |g, u| {
            let (g, u) = (g.min(7.0), u.clamp(-7.0, 7.0));
            g * sigmoid(1.702 * g) * (1.0 + u)
        });
    }

    #[test]
    fn far_values_stay_finite() {
        let cpu = &crate::testing::cpus()[0];
        for kind in [Gate::Silu, Gate::GeluTanh, Gate::Sigmoid, Gate::ClampedSwiglu] {
            let mut y = [0.0; 4];
            gated(cpu, &[-1e4, 1e4, -100.0, 100.0], &[1.0; 4], &mut y, kind);
            assert!(y.iter().all(|y| y.is_finite()), "{kind:?}: {y:?}");
            assert_eq!(y[0], 0.0, "{kind:?}");
        }
    }

    #[test]
    fn the_exact_gelu_is_that_of_the_error_function() {
        let (wide, width) = (|x: f32| x * 10.0, 100);
        check_rows(
            width,
            width,
            2e-6,
            |cpu, _, x, y| {
                y.iter_mut().zip(x).for_each(|(y, &x)| *y = wide(x));
                gelu_erf(cpu, y);
            },
            |_, x| {
                let exact = |x: f64| 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2));
                x.iter().map(|&x| exact(f64::from(wide(x)))).collect()
            },
        );
    }

    #[test]
    fn what_is_below_zero_is_cut_off_and_the_rest_squared() {
        check_rows(
            70,
            70,
            0.0,
            |cpu, _, x, y| {
                y.copy_from_slice(x);
                relu_squared(cpu, y);
            },
            |_, x| x.iter().map(|&x| f64::from(x.max(0.0) * x.max(0.0))).collect(),
        );
    }
}
