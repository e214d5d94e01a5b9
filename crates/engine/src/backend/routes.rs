//! Which experts a row uses, decided on the host.

use crate::architecture::{Router, Score};

/// How experts are chosen and weighed.
#[derive(Clone, Debug)]
pub struct Choice<V> {
    /// Experts there are.
    pub count: usize,
    /// Experts that a row uses; not more.
    pub used: usize,
    /// What makes scores of logits, and weights of scores.
    pub router: Router,
    /// Added to the scores for the choice, not to the weights. `[count]`
    pub bias: Option<V>,
    /// Multiplies the weights.
    pub scale: f32,
}

/// Which experts a step's rows use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routes {
    /// Experts per row.
    pub used: usize,
    /// `[T, used]`
    pub experts: Vec<u32>,
    /// What multiplies each expert's result. `[T, used]`
    pub weights: Vec<f32>,
}

impl<V> Choice<V> {
    /// The same by reference, as backends take it.
    pub fn by_ref(&self) -> Choice<&V> {
        let Choice { count, used, router, ref bias, scale } = *self;
        Choice { count, used, router, bias: bias.as_ref(), scale }
    }

    /// The routes by `logits: [T, count]`, with the numbers of the bias. Of equal scores the expert with the lower number is chosen.
    pub fn routes(&self, logits: &[f32], bias: &[f32]) -> Routes {
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
                scores[expert] + bias.get(expert).copied().unwrap_or(0.0)
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
        let choice = Choice::<()> { count: 4, used: 2, router, bias: None, scale };
        let routes = choice.routes(&[0.0, 2.0, 1.0, 2.0], bias);
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
