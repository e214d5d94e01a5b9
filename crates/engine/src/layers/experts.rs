//! A feed-forward layer of experts, of which each token uses a few. Source: Shazeer et al. 2017,
//! <https://arxiv.org/abs/1701.06538>.

use super::{Ffn, Linear, Weights};
use crate::Result;
use crate::architecture::{Activation, Router, Score};
use crate::backend::{Backend, ExpertStacks, Routes};
use crate::facts::{Facts, Sizes};

/// One layer of experts.
#[derive(Debug)]
pub struct Experts<B: Backend> {
    router: Linear<B>,
    choice: Choice,
    stacks: ExpertStacks<B::Stack, B::Vector>,
    shared: Option<Shared<B>>,
}

/// An expert that every token uses.
#[derive(Debug)]
struct Shared<B: Backend> {
    ffn: Ffn<B>,
    /// `[1, D]`: the sigmoid of its product with a row multiplies what the expert gives.
    gate: Option<B::Matrix>,
}

impl<B: Backend> Experts<B> {
    /// Loads the layer of block number `layer`; the experts' width F is that of the tensors.
    ///
    /// # Errors
    /// If a key or tensor is missing, or has another shape.
    pub fn load(weights: &Weights<B>, layer: usize, sizes: &Sizes) -> Result<Self> {
        let facts = weights.facts;
        let width = sizes.width;
        let activation = facts.architecture.activation;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let count = facts.size("expert_count")?;
        let hidden = weights.dimension(&name("ffn_down_exps.weight"), 0)?;
        let bias = match weights.vector(&name("exp_probs_b.bias"), count)? {
            Some(bias) => weights.backend.values(&bias)?,
            None => Vec::new(),
        };
        let (gate, up) = if weights.has(&name("ffn_gate_up_exps.weight")) {
            // Fused rows are those of the gate, then those of up.
            let fused =
                |rows| weights.stack(&name("ffn_gate_up_exps.weight"), count, 2 * hidden, width, rows);
            (fused(0..hidden)?, fused(hidden..2 * hidden)?)
        } else {
            let stack = |part| weights.stack(&name(part), count, hidden, width, 0..hidden);
            (stack("ffn_gate_exps.weight")?, stack("ffn_up_exps.weight")?)
        };
        let shared = if weights.has(&name("ffn_down_shexp.weight")) {
            Some(Shared {
                ffn: Ffn::load(weights, layer, "_shexp", width, activation)?,
                gate: weights.matrix(&name("ffn_gate_inp_shexp.weight"), 1, width)?,
            })
        } else {
            None
        };
        Ok(Experts {
            router: Linear::load(weights, &name("ffn_gate_inp"), count, width)?,
            choice: Choice::of(facts, bias)?,
            stacks: ExpertStacks {
                gate,
                up,
                down: weights.stack(&name("ffn_down_exps.weight"), count, width, hidden, 0..width)?,
                gate_bias: weights.table(&name("ffn_gate_exps.bias"), hidden, count)?,
                up_bias: weights.table(&name("ffn_up_exps.bias"), hidden, count)?,
                down_bias: weights.table(&name("ffn_down_exps.bias"), width, count)?,
                activation,
            },
            shared,
        })
    }

    /// `x: [T, D]` -> `[T, D]`
    ///
    /// # Errors
    /// If the backend fails.
    pub fn apply(&self, backend: &mut B, x: &B::Array) -> Result<B::Array> {
        let logits = self.router.apply(backend, x)?;
        let routes = self.choice.routes(&backend.to_host(&logits)?);
        let y = backend.experts(x, &routes, &self.stacks.by_ref())?;
        let Some(shared) = &self.shared else { return Ok(y) };
        let mut z = shared.ffn.apply(backend, x)?;
        if let Some(gate) = &shared.gate {
            let gate = backend.matmul(x, gate)?; // [T, 1]
            z = backend.gated(&gate, z, Activation::Sigmoid)?;
        }
        backend.add(y, &z)
    }
}

/// How experts are chosen and weighed.
#[derive(Debug)]
struct Choice {
    count: usize,
    used: usize,
    router: Router,
    /// Added to the scores for the choice, not to the weights. Empty = none.
    bias: Vec<f32>,
    /// Multiplies the weights.
    scale: f32,
}

impl Choice {
    fn of(facts: &Facts, bias: Vec<f32>) -> Result<Self> {
        let (count, used) = (facts.size("expert_count")?, facts.size("expert_used_count")?);
        if used > count {
            return Err(facts.invalid("expert_used_count", &format!("there are only {count} experts")));
        }
        if facts.maybe("expert_group_count")?.is_some_and(|groups| groups > 1) {
            return Err(facts.invalid("expert_group_count", "experts in groups are not supported"));
        }
        let mut router = facts.architecture.router;
        // Source: llama.cpp `llama_expert_gating_func_type`.
        router.score = match facts.maybe("expert_gating_func")? {
            None => router.score,
            Some(1) => Score::Softmax,
            Some(2) => Score::Sigmoid,
            Some(3) => Score::SoftmaxOfChosen,
            Some(other) => {
                return Err(facts.invalid("expert_gating_func", &format!("{other} is not supported")));
            }
        };
        router.normalise = facts.flag("expert_weights_norm")?.unwrap_or(router.normalise);
        let scale = facts.number("expert_weights_scale")?.filter(|&scale| scale != 0.0).unwrap_or(1.0);
        Ok(Choice { count, used, router, bias, scale })
    }

    /// `logits: [T, experts]`. Of equal scores the expert with the lower number is chosen.
    fn routes(&self, logits: &[f32]) -> Routes {
        let mut routes = Routes { used: self.used, experts: Vec::new(), weights: Vec::new() };
        let mut order: Vec<u32> = Vec::new();
        let mut scores: Vec<f32> = Vec::new();
        for row in logits.chunks(self.count) {
            scores.clear();
            match self.router.score {
                Score::Softmax => softmax(row, &mut scores),
                Score::Sigmoid => scores.extend(row.iter().map(|x| 1.0 / (1.0 + (-x).exp()))),
                Score::SoftmaxOfChosen => scores.extend(row),
            }
            let rank = |expert: u32| {
                let expert = expert as usize;
                scores[expert] + self.bias.get(expert).copied().unwrap_or(0.0)
            };
            order.clear();
            order.extend(0..self.count as u32);
            let best = |a: &u32, b: &u32| rank(*b).total_cmp(&rank(*a)).then(a.cmp(b));
            if self.used < self.count {
                order.select_nth_unstable_by(self.used, best);
            }
            let chosen = &mut order[..self.used];
            chosen.sort_unstable_by(best);
            let start = routes.weights.len();
            let picked = chosen.iter().map(|&expert| scores[expert as usize]);
            if self.router.score == Score::SoftmaxOfChosen {
                softmax(&picked.collect::<Vec<_>>(), &mut routes.weights);
            } else {
                routes.weights.extend(picked);
            }
            routes.experts.extend_from_slice(chosen);
            let weights = &mut routes.weights[start..];
            if self.router.normalise {
                // The smallest normal f16, as the reference bounds the sum.
                let sum = weights.iter().sum::<f32>().max(6.103_515_6e-5);
                weights.iter_mut().for_each(|weight| *weight /= sum);
            }
            weights.iter_mut().for_each(|weight| *weight *= self.scale);
        }
        routes
    }
}

/// Appends the softmax of `row` to `out`.
fn softmax(row: &[f32], out: &mut Vec<f32>) {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let start = out.len();
    out.extend(row.iter().map(|x| (x - largest).exp()));
    let sum: f32 = out[start..].iter().sum();
    out[start..].iter_mut().for_each(|x| *x /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(router: Router, bias: &[f32], scale: f32, expected: &[(u32, f32)]) {
        let choice = Choice { count: 4, used: 2, router, bias: bias.to_vec(), scale };
        let routes = choice.routes(&[0.0, 2.0, 1.0, 2.0]);
        let found: Vec<_> = routes.experts.iter().copied().zip(routes.weights.iter().copied()).collect();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.0 == expected.0 && (found.1 - expected.1).abs() < 1e-6, "{found:?} {expected:?}");
        }
    }

    #[test]
    fn each_way_of_scoring() {
        let e = std::f32::consts::E;
        let all = 1.0 + e + 2.0 * e * e;
        let softmax = |normalise| Router { score: Score::Softmax, normalise };
        check(softmax(false), &[], 1.0, &[(1, e * e / all), (3, e * e / all)]);
        check(softmax(true), &[], 1.0, &[(1, 0.5), (3, 0.5)]);
        check(Router { score: Score::SoftmaxOfChosen, normalise: false }, &[], 1.0, &[(1, 0.5), (3, 0.5)]);
    }

    #[test]
    fn a_bias_chooses_and_does_not_weigh() {
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        let router = Router { score: Score::Sigmoid, normalise: true };
        let sum = sigmoid(0.0) + sigmoid(2.0);
        let expected = [(0, 1.8 * sigmoid(0.0) / sum), (1, 1.8 * sigmoid(2.0) / sum)];
        check(router, &[1.0, 0.0, 0.0, 0.0], 1.8, &expected);
    }
}
