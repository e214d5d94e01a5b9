//! Chooses the experts of each row, on the host.

use std::cmp::Ordering;

use super::try_map;
use crate::Result;
use crate::architecture::{Router, Score};

/// How experts are chosen and weighted.
#[derive(Clone, Debug)]
pub struct Routing<V> {
    /// Number of experts.
    pub count: usize,
    /// Number of experts per row, at most `count`.
    pub used: usize,
    /// Converts logits to scores, and scores to weights.
    pub router: Router,
    /// The groups from which experts are chosen; `None` if they aren't grouped.
    pub groups: Option<Groups>,
    /// Added to the scores for the choice, but not to the weights.
    /// `[count]`
    pub bias: Option<V>,
    /// Multiplies the weights.
    pub scale: f32,
    /// Further factors of the weights, one per expert.
    /// `[count]`
    pub scales: Option<V>,
}

/// Experts in equal groups of neighbors: a row only uses experts of its best groups.
/// A group's score is the sum of its two best experts.
/// Source: DeepSeek-AI 2024, <https://arxiv.org/abs/2412.19437>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Number of groups; divides the number of experts.
    pub count: usize,
    /// Number of groups per row; together they have at least as many experts as a row uses.
    pub used: usize,
}

/// The experts that a step's rows use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoutedExperts {
    /// Experts per row.
    pub used: usize,
    /// `[T, used]`
    pub experts: Vec<u32>,
    /// Factors of the experts' results.
    /// `[T, used]`
    pub weights: Vec<f32>,
    /// Whether the weights multiply the expert's input instead.
    pub weigh_input: bool,
}

impl<V> Routing<V> {
    /// Borrows the routing, as backends take it.
    pub fn by_ref(&self) -> Routing<&V> {
        let Routing { count, used, router, groups, ref bias, scale, ref scales } = *self;
        Routing { count, used, router, groups, bias: bias.as_ref(), scale, scales: scales.as_ref() }
    }

    /// Maps all vectors with `vector`, up to the first error.
    pub(crate) fn try_map<U>(self, vector: impl Fn(V) -> Result<U>) -> Result<Routing<U>> {
        let Routing { count, used, router, groups, bias, scale, scales } = self;
        let [bias, scales] = try_map([bias, scales], |it| it.map(&vector).transpose())?;
        Ok(Routing { count, used, router, groups, bias, scale, scales })
    }

    /// Chooses experts by `logits: [T, count]`, with the numbers of the bias and of the scales,
    /// which may be empty.
    /// Of equal scores, the lower-numbered expert is chosen.
    pub fn route(&self, logits: &[f32], bias: &[f32], scales: &[f32]) -> RoutedExperts {
        let weigh_input = self.router.weigh_input;
        let mut routes = RoutedExperts { used: self.used, weigh_input, ..RoutedExperts::default() };
        let mut order: Vec<u32> = Vec::new();
        let mut scores: Vec<f32> = Vec::new();
        for row in logits.chunks(self.count) {
            scores.clear();
            match self.router.score {
                Score::Softmax => softmax(row, &mut scores),
                Score::Sigmoid => scores.extend(row.iter().copied().map(sigmoid)),
                Score::SoftmaxOfChosen | Score::SigmoidOfChosen => scores.extend(row),
            }
            let rank = |expert: u32| {
                let expert = expert as usize;
                scores[expert] + bias.get(expert).copied().unwrap_or(0.0)
            };
            order.clear();
            order.extend(0..self.count as u32);
            if let Some(groups) = self.groups {
                groups.keep_best(&mut order, rank);
            }
            let best = |a: &u32, b: &u32| first(rank, *a, *b);
            if self.used < order.len() {
                order.select_nth_unstable_by(self.used, best);
            }
            let chosen = &mut order[..self.used];
            chosen.sort_unstable_by(best);
            let start = routes.weights.len();
            let picked = chosen.iter().map(|&expert| scores[expert as usize]);
            match self.router.score {
                Score::SoftmaxOfChosen => softmax(&picked.collect::<Vec<_>>(), &mut routes.weights),
                Score::SigmoidOfChosen => routes.weights.extend(picked.map(sigmoid)),
                Score::Softmax | Score::Sigmoid => routes.weights.extend(picked),
            }
            routes.experts.extend_from_slice(chosen);
            let weights = &mut routes.weights[start..];
            if self.router.normalise {
                // The smallest normal f16; the reference has the same lower bound for the sum.
                let sum = weights.iter().sum::<f32>().max(6.103_515_6e-5);
                weights.iter_mut().for_each(|weight| *weight /= sum);
            }
            weights.iter_mut().for_each(|weight| *weight *= self.scale);
            if !scales.is_empty() {
                weights.iter_mut().zip(chosen).for_each(|(weight, at)| *weight *= scales[*at as usize]);
            }
        }
        routes
    }
}

impl Groups {
    /// Keeps the experts of the best groups in `experts`, which are in ascending order; preserves
    /// the order.
    fn keep_best(self, experts: &mut Vec<u32>, rank: impl Fn(u32) -> f32) {
        let size = experts.len() / self.count;
        let score = |group: &[u32]| {
            let mut two = [f32::NEG_INFINITY; 2];
            for rank in group.iter().map(|&expert| rank(expert)) {
                if rank > two[0] {
                    two = [rank, two[0]];
                } else if rank > two[1] {
                    two[1] = rank;
                }
            }
            if size == 1 { two[0] } else { two[0] + two[1] }
        };
        let scores: Vec<f32> = experts.chunks(size).map(score).collect();
        let mut groups: Vec<u32> = (0..self.count as u32).collect();
        groups.sort_unstable_by(|a, b| first(|group| scores[group as usize], *a, *b));
        groups.truncate(self.used);
        experts.retain(|&expert| groups.contains(&(expert / size as u32)));
    }
}

/// Orders descending by `rank`, then ascending by number.
fn first(rank: impl Fn(u32) -> f32, a: u32, b: u32) -> Ordering {
    rank(b).total_cmp(&rank(a)).then(a.cmp(&b))
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
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
        let (groups, scales) = (None, None);
        let routing = Routing::<()> { count: 4, used: 2, router, groups, bias: None, scale, scales };
        let routes = routing.route(&[0.0, 2.0, 1.0, 2.0], bias, &[]);
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
        let softmax = |normalise| Router { score: Score::Softmax, normalise, ..Router::default() };
        check(softmax(false), &[], 1.0, &[(1, e * e / all), (3, e * e / all)]);
        check(softmax(true), &[], 1.0, &[(1, 0.5), (3, 0.5)]);
        let by = |score| Router { score, ..Router::default() };
        check(by(Score::SoftmaxOfChosen), &[], 1.0, &[(1, 0.5), (3, 0.5)]);
        check(by(Score::SigmoidOfChosen), &[], 1.0, &[(1, sigmoid(2.0)), (3, sigmoid(2.0))]);
    }

    #[test]
    fn a_bias_chooses_and_does_not_weigh() {
        let router = Router { score: Score::Sigmoid, normalise: true, ..Router::default() };
        let sum = sigmoid(0.0) + sigmoid(2.0);
        let expected = [(0, 1.8 * sigmoid(0.0) / sum), (1, 1.8 * sigmoid(2.0) / sum)];
        check(router, &[1.0, 0.0, 0.0, 0.0], 1.8, &expected);
    }

    #[test]
    fn only_the_best_groups_count() {
        // With groups of two, the second group has the best sum, then the last; the overall best
        // expert is in neither.
        let logits = [5.0, -9.0, 3.0, 2.5, 0.0, 1.0, 2.0, 2.4];
        let router = Router { score: Score::SoftmaxOfChosen, ..Router::default() };
        let routes = |groups, bias: &[f32]| {
            let routing =
                Routing::<()> { count: 8, used: 3, router, groups, bias: None, scale: 1.0, scales: None };
            routing.route(&logits, bias, &[]).experts
        };
        assert_eq!(routes(None, &[]), [0, 2, 3]);
        assert_eq!(routes(Some(Groups { count: 4, used: 2 }), &[]), [2, 3, 7]);
        // A bias affects the choice of groups as well.
        let bias = [0.0, 0.0, 0.0, 0.0, 0.0, 7.0, 0.0, 0.0];
        assert_eq!(routes(Some(Groups { count: 4, used: 2 }), &bias), [5, 2, 3]);
        // Using all groups equals using none.
        assert_eq!(routes(Some(Groups { count: 4, used: 4 }), &[]), [0, 2, 3]);
    }

    #[test]
    fn each_expert_has_its_own_scale() {
        let router = Router { normalise: true, ..Router::default() };
        let routing =
            Routing::<()> { count: 3, used: 2, router, groups: None, bias: None, scale: 2.0, scales: None };
        let routes = routing.route(&[1.0, -4.0, 1.0], &[], &[0.25, 9.0, 3.0]);
        assert_eq!((routes.experts, routes.weights), (vec![0, 2], vec![0.25, 3.0]));
    }
}
