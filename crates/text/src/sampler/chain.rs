//! llama.cpp's steps that depend on the distribution over the candidates, in its order:
//! typical_p, XTC and dynamic temperature, and Mirostat, which replaces them all.
//!
//! The candidates stay sorted, the most likely first.
//! Logarithms and powers come from `libm`, so that they are equal on every platform.

use super::{Sampler, chosen};
use crate::request::Sampling;

/// How many of the most likely tokens Mirostat 1 uses to estimate how fast probabilities fall.
const MIROSTAT_TOKENS: usize = 100;

impl Sampler {
    /// Whether any of these steps is on.
    pub(super) fn is_chained(&self) -> bool {
        let Sampling { typical_p, dynatemp_range, mirostat, .. } = self.options;
        typical_p < 1.0 || dynatemp_range > 0.0 || mirostat > 0 || self.excludes_top()
    }

    fn excludes_top(&self) -> bool {
        self.options.xtc_probability > 0.0 && self.options.xtc_threshold <= 0.5
    }

    /// Samples from all logits; takes one random number, and another one for XTC.
    pub(super) fn sample_by_chain(&mut self, logits: &[f32]) -> Option<u32> {
        let random = self.random.next_f64();
        if self.options.mirostat > 0 {
            self.top_k(logits, usize::MAX);
            return self.sample_by_mirostat(logits.len(), random);
        }
        let chance = self.excludes_top().then(|| self.random.next_f64());
        self.top_k(logits, if self.options.top_k > 0 { self.options.top_k } else { usize::MAX });
        self.keep_typical();
        self.keep_likely();
        if chance.is_some_and(|chance| chance <= f64::from(self.options.xtc_probability)) {
            self.exclude_top();
        }
        let temperature = self.temperature();
        self.choose_at(temperature, random).map(|at| self.candidates[at].1)
    }

    /// The candidates' entropy in nats.
    fn entropy(&self, total: f64) -> f64 {
        let shares = self.weights.iter().map(|&weight| f64::from(weight) / total);
        shares.filter(|&share| share > 0.0).map(|share| -share * libm::log(share)).sum()
    }

    /// Locally typical sampling (arXiv 2202.00666).
    fn keep_typical(&mut self) {
        if self.options.typical_p >= 1.0 {
            return;
        }
        let total = self.weigh(1.0);
        let entropy = self.entropy(total);
        let share = |at: usize| f64::from(self.weights[at]) / total;
        let mut order: Vec<(f64, usize)> =
            (0..self.weights.len()).map(|at| ((-libm::log(share(at)) - entropy).abs(), at)).collect();
        order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut sum = 0.0;
        let last = order.iter().position(|&(_, at)| {
            sum += share(at);
            sum > f64::from(self.options.typical_p)
        });
        let kept = last.map_or(order.len(), |last| last + 1);
        let mut kept: Vec<usize> = order[..kept].iter().map(|&(_, at)| at).collect();
        kept.sort_unstable();
        self.candidates = kept.into_iter().map(|at| self.candidates[at]).collect();
    }

    /// Applies `top_p` and `min_p`.
    fn keep_likely(&mut self) {
        let Sampling { top_p, min_p, .. } = self.options;
        let total = self.weigh(1.0);
        let mut sum = 0.0;
        let enough = self.weights.iter().position(|&weight| {
            sum += f64::from(weight);
            top_p < 1.0 && sum >= f64::from(top_p) * total
        });
        let likely = self.weights.iter().take_while(|&&weight| weight >= min_p.min(1.0)).count();
        self.candidates.truncate(likely.min(enough.map_or(likely, |last| last + 1)));
    }

    /// Of the tokens that reach the threshold, keeps only the least likely one.
    fn exclude_top(&mut self) {
        let total = self.weigh(1.0);
        let threshold = f64::from(self.options.xtc_threshold) * total;
        let reach = self.weights.iter().take_while(|&&weight| f64::from(weight) >= threshold).count();
        self.candidates.drain(..reach.saturating_sub(1));
    }

    /// The temperature for the current candidates.
    fn temperature(&mut self) -> f32 {
        let Sampling { temperature, dynatemp_range, dynatemp_exponent, .. } = self.options;
        if dynatemp_range <= 0.0 || self.candidates.len() < 2 {
            return temperature;
        }
        let total = self.weigh(1.0);
        let share = self.entropy(total) / libm::log(self.candidates.len() as f64);
        let (least, most) = ((temperature - dynatemp_range).max(0.0), temperature + dynatemp_range);
        least + (most - least) * libm::pow(share, f64::from(dynatemp_exponent)) as f32
    }

    /// The index of the candidate selected by `random`, in [0, 1).
    fn choose_at(&mut self, temperature: f32, random: f64) -> Option<usize> {
        if temperature <= 0.0 {
            return (!self.candidates.is_empty()).then_some(0);
        }
        let total = self.weigh(temperature);
        chosen(self.weights.iter().copied(), random * total)
    }

    /// Mirostat (arXiv 2007.14966) over a vocabulary of `size`.
    fn sample_by_mirostat(&mut self, size: usize, random: f64) -> Option<u32> {
        let Sampling { temperature, mirostat, mirostat_tau, mirostat_eta, .. } = self.options;
        if temperature > 0.0 {
            let kept = match mirostat {
                1 => self.mirostat_k(size),
                _ => {
                    let total = self.weigh(temperature);
                    let surprise = |weight: f32| -libm::log2(f64::from(weight) / total);
                    self.weights.iter().take_while(|&&weight| surprise(weight) <= self.mu).count()
                }
            };
            self.candidates.truncate(kept.max(1));
        }
        let at = self.choose_at(temperature, random)?;
        if temperature > 0.0 {
            let total: f64 = self.weights.iter().copied().map(f64::from).sum();
            let surprise = -libm::log2(f64::from(self.weights[at]) / total);
            self.mu -= f64::from(mirostat_eta) * (surprise - f64::from(mirostat_tau));
        }
        Some(self.candidates[at].1)
    }

    /// How many tokens Mirostat 1 keeps: estimates the exponent of Zipf's law by least squares, and
    /// returns the k whose expected surprise is `mu`.
    fn mirostat_k(&self, size: usize) -> usize {
        let temperature = f64::from(self.options.temperature);
        let pairs = self.candidates.windows(2).zip(1..MIROSTAT_TOKENS);
        let (products, squares) = pairs.fold((0.0, 0.0), |(products, squares), (pair, rank)| {
            let t = libm::log((rank + 1) as f64 / rank as f64);
            let b = f64::from(pair[0].0 - pair[1].0) / temperature;
            (products + t * b, squares + t * t)
        });
        let s = products / squares;
        let excess = s - 1.0;
        let k = excess * libm::exp2(self.mu) / (1.0 - libm::pow(size as f64, -excess));
        // NaN, for example for a single token, becomes 0.
        libm::pow(k, 1.0 / s) as usize
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
