//! Activations of gated feed-forward blocks and output gates.

use crate::Cpu;
use crate::elementwise::over_pieces;
use crate::exp::{sigmoid, silu};
use crate::isa::for_each_isa;

/// How a gate `g` acts on `u`.
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

/// `y = act(gate) up`, number by number.
///
/// # Panics
/// If the lengths differ.
pub fn gated(cpu: &Cpu, gate: &[f32], up: &[f32], y: &mut [f32], kind: Gate) {
    assert!(gate.len() == y.len() && up.len() == y.len(), "gated: {}, {}, {}", gate.len(), up.len(), y.len());
    over_pieces(cpu, y, 1, &|range, y| gate_all(cpu.isa, &gate[range.clone()], &up[range], y, kind));
}

/// `x = max(x, 0)²`, number by number.
pub fn relu_squared(cpu: &Cpu, x: &mut [f32]) {
    over_pieces(cpu, x, 1, &|_, x| square_all(cpu.isa, x));
}

for_each_isa! {
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
