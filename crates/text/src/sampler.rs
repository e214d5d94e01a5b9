//! The sampler: chooses the next token from logits.
//!
//! The steps apply in the order of [`Sampling`]'s fields.
//! Equal seeds and logits give equal tokens on every platform.
//! Knows nothing of vocabularies; a token whose logit is minus infinity is never sampled.

mod chain;
mod dry;

use alara_kernels::{Isa, TERMS, argmax, softmax_terms};

use crate::request::{Biased, Sampling};
pub use dry::Breakers;

/// Samples tokens for one sequence.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: Sampling,
    random: SplitMix64,
    isa: Isa,
    breakers: Breakers,
    /// Mirostat's surprise limit for a token, in bits; starts at twice the target.
    mu: f64,
    /// The weights of all tokens, or of the candidates, and the sums of each group of [`TERMS`] of
    /// them;
    /// kept to reuse the allocations.
    weights: Vec<f32>,
    sums: Vec<f64>,
    /// The logits of the candidates; kept to reuse the allocation.
    logits: Vec<f32>,
    /// `(logit or weight, token)` of the candidates; kept to reuse the allocation.
    candidates: Vec<(f32, u32)>,
    /// `(token, occurrences)` of the seen tokens; kept to reuse the allocation.
    seen: Vec<(u32, u32)>,
}

impl Sampler {
    /// A sampler at the start of its seed's random sequence.
    /// Ignores texts that need tokenization first: those of biases and of DRY's breakers.
    pub fn new(options: &Sampling) -> Self {
        Sampler {
            options: options.clone(),
            random: SplitMix64(options.seed),
            isa: Isa::best(),
            breakers: Breakers::default(),
            mu: 2.0 * f64::from(options.mirostat_tau),
            weights: Vec::new(),
            sums: Vec::new(),
            logits: Vec::new(),
            candidates: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Returns the sampler using another instruction set; it samples the same tokens.
    #[must_use]
    pub fn with_isa(mut self, isa: Isa) -> Self {
        self.isa = isa;
        self
    }

    /// Returns the sampler with these sequence breakers.
    #[must_use]
    pub fn with_breakers(mut self, breakers: Breakers) -> Self {
        self.breakers = breakers;
        self
    }

    /// Samples a token.
    /// `logits` has one entry per token and is modified by biases and penalties; `seen` holds the
    /// tokens of the sequence so far, the latest last.
    /// `None` if no token has a finite logit.
    pub fn sample(&mut self, logits: &mut [f32], seen: &[u32]) -> Option<u32> {
        self.penalize(logits, seen);
        self.sample_unpenalized(logits)
    }

    /// Whether tokens are truncated because of their probability relative to others, so that the
    /// result depends on the other candidates.
    pub fn truncates(&self) -> bool {
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.options;
        self.is_chained() || temperature > 0.0 && (top_k > 0 || top_p < 1.0 || min_p > 0.0)
    }

    /// Samples a token by its logit after penalties.
    /// `None` if no token has a finite logit.
    /// Call once per token: Mirostat records the sampled token.
    ///
    /// Takes one random number per call, none at temperature 0.
    pub fn sample_unpenalized(&mut self, logits: &[f32]) -> Option<u32> {
        if self.is_chained() {
            return self.sample_by_chain(logits);
        }
        if self.options.temperature <= 0.0 {
            return argmax(self.isa, logits).map(|(_, token)| token as u32);
        }
        let random = self.random.next_f64();
        if self.options.top_k > 0 {
            self.top_k(logits, self.options.top_k);
            return self.sample_candidates(random);
        }
        let total = self.softmax(logits, self.options.temperature)?;
        if !self.truncates() {
            return self.choose_among_all(random * total);
        }
        self.take_candidates(total);
        self.truncate_and_choose(total, random)
    }

    /// Samples from the candidates' logits, which `top_k` selected.
    /// `random` is in [0, 1).
    fn sample_candidates(&mut self, random: f64) -> Option<u32> {
        let total = self.weigh(self.options.temperature);
        self.candidates.iter_mut().zip(&self.weights).for_each(|((value, _), weight)| *value = *weight);
        self.truncate_and_choose(total, random)
    }

    /// Computes the candidates' weights from their logits, with a maximum of 1, and returns their
    /// sum: 0 without candidates.
    fn weigh(&mut self, temperature: f32) -> f64 {
        let mut logits = std::mem::take(&mut self.logits);
        logits.clear();
        logits.extend(self.candidates.iter().map(|(logit, _)| *logit));
        let total = self.softmax(&logits, temperature);
        self.logits = logits;
        if total.is_none() {
            self.weights.clear();
        }
        total.unwrap_or(0.0)
    }

    /// Samples from the candidates' weights; `total` is the sum over all tokens that `top_k` left.
    /// `random` is in [0, 1).
    fn truncate_and_choose(&mut self, total: f64, random: f64) -> Option<u32> {
        self.keep_top_p(total);
        self.keep_min_p();
        self.choose(random)
    }

    fn changes_logits(&self) -> bool {
        self.penalizes() || self.is_dry() || !self.options.logit_bias.is_empty()
    }

    fn is_dry(&self) -> bool {
        self.options.dry_multiplier != 0.0 && self.options.dry_base >= 1.0
    }

    fn penalizes(&self) -> bool {
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, .. } = self.options;
        repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0
    }

    /// How many of the top logits determine the sample: at temperature 0 the greatest, otherwise
    /// those that `top_k` leaves.
    /// `None` if sampling needs all logits: with biases and penalties, which change the order, and
    /// with steps that look at all candidates.
    pub fn top_needed(&self) -> Option<usize> {
        match self.options.top_k {
            _ if self.changes_logits() || self.is_chained() => None,
            _ if self.options.temperature <= 0.0 => Some(1),
            0 => None,
            kept => Some(kept),
        }
    }

    /// Samples as [`Sampler::sample_unpenalized`] does, from the [needed](Sampler::top_needed)
    /// logits and their tokens alone: in descending order, equal ones by token id.
    /// `None` if they don't suffice; then the sampler is unchanged.
    pub fn sample_from_top(&mut self, top: &[(f32, u32)]) -> Option<u32> {
        let Sampling { temperature, top_k, .. } = self.options;
        if temperature <= 0.0 {
            // Zero equals negative zero, which may belong to an earlier token.
            return top.first().filter(|(logit, _)| *logit != 0.0).map(|&(_, token)| token);
        }
        self.candidates.clear();
        self.candidates.extend(top.iter().take(top_k));
        if self.candidates.is_empty() {
            return None;
        }
        let random = self.random.next_f64();
        self.sample_candidates(random)
    }

    /// Applies the biases to the logits, and the penalties to those of tokens in `seen`, the latest
    /// last.
    ///
    /// Formulas of the penalties: CTRL (arXiv 1909.05858, section 4.1) for repetition, OpenAI's API
    /// reference for presence and frequency.
    pub fn penalize(&mut self, logits: &mut [f32], seen: &[u32]) {
        for (of, bias) in &self.options.logit_bias {
            let Biased::Token(token) = of else { continue };
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit = if *bias <= Sampling::BANNED { f32::NEG_INFINITY } else { *logit + bias };
            }
        }
        self.penalize_seen(logits, seen);
        if self.is_dry() {
            self.penalize_repetitions(logits, seen);
        }
    }

    fn penalize_repetitions(&self, logits: &mut [f32], seen: &[u32]) {
        let Sampling { dry_multiplier, dry_base, dry_allowed_length, dry_penalty_last_n, .. } = self.options;
        let window = &seen[seen.len().saturating_sub(dry_penalty_last_n)..];
        // Larger powers overflow f32, and minus infinity would ban the token.
        let most = match f64::from(dry_base) {
            base if base > 1.000_001 => libm::log(f64::from(f32::MAX)) / libm::log(base),
            _ => f64::MAX,
        };
        for (token, length) in dry::repetitions(window, dry_allowed_length, &self.breakers) {
            let Some(logit) = logits.get_mut(token as usize) else { continue };
            let exponent = ((length - dry_allowed_length) as f64).min(most.floor());
            *logit -= dry_multiplier * libm::pow(f64::from(dry_base), exponent) as f32;
        }
    }

    fn penalize_seen(&mut self, logits: &mut [f32], seen: &[u32]) {
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, penalty_last_n, .. } =
            self.options;
        if !self.penalizes() {
            return;
        }
        self.seen.clear();
        self.seen.extend(seen.iter().rev().take(penalty_last_n).map(|&token| (token, 1)));
        self.seen.sort_unstable();
        self.seen.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += u32::from(same);
            same
        });
        for &(token, occurrences) in &self.seen {
            let Some(logit) = logits.get_mut(token as usize) else { continue };
            *logit = if *logit > 0.0 { *logit / repetition_penalty } else { *logit * repetition_penalty };
            *logit -= presence_penalty + frequency_penalty * occurrences as f32;
        }
    }

    /// Selects the `k` highest finite logits as candidates, in descending order.
    fn top_k(&mut self, logits: &[f32], k: usize) {
        self.candidates.clear();
        // Few logits exceed the minimum of the best k so far, so the method of sorting hardly
        // matters.
        let mut bar = f32::NEG_INFINITY;
        let mut token = 0;
        for some in logits.chunks(16) {
            // Tests a whole group at once, which compilers vectorize.
            if some.iter().fold(false, |any, &logit| any | (logit >= bar)) {
                for (&logit, token) in some.iter().zip(token..) {
                    if logit.total_cmp(&bar).is_gt() && logit.is_finite() {
                        self.candidates.push((logit, token));
                        if self.candidates.len() == k.saturating_mul(2) {
                            self.keep_best(k);
                            bar = self.candidates[k - 1].0;
                        }
                    }
                }
            }
            token += some.len() as u32;
        }
        self.keep_best(k);
    }

    /// Keeps the most likely candidates, in the order of [`Sampler::sort_first`].
    fn keep_best(&mut self, count: usize) {
        self.sort_first(count);
        self.candidates.truncate(count);
    }

    /// Moves the `count` most likely candidates to the front, in descending order, equal ones by
    /// id.
    fn sort_first(&mut self, count: usize) {
        let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if count < self.candidates.len() {
            self.candidates.select_nth_unstable_by(count, order);
        }
        let count = count.min(self.candidates.len());
        self.candidates[..count].sort_unstable_by(order);
    }

    /// Converts logits to weights with a maximum of 1, and returns their sum.
    /// `None` if no logit is finite.
    fn softmax(&mut self, logits: &[f32], temperature: f32) -> Option<f64> {
        let (highest, _) = argmax(self.isa, logits)?;
        self.weights.resize(logits.len(), 0.0);
        softmax_terms(self.isa, logits, highest, temperature, &mut self.weights, &mut self.sums);
        Some(self.sums.iter().sum())
    }

    /// Selects the weights that `top_p` and `min_p` may leave as candidates; `total` is the sum of
    /// all weights.
    fn take_candidates(&mut self, total: f64) {
        let Sampling { top_p, min_p, .. } = self.options;
        // All tokens below this weight together are less than `top_p` cuts off: most of the
        // vocabulary, which needn't be sorted.
        let rest = (1.0 - f64::from(top_p)).max(0.0) * total / (2.0 * self.weights.len() as f64);
        let least = min_p.min(1.0).max(rest as f32);
        let more = |weight: f32| weight >= least && weight > 0.0;
        self.candidates.clear();
        let mut first = 0;
        for some in self.weights.chunks(16) {
            // Tests a whole group at once, which compilers vectorize.
            if some.iter().fold(false, |any, &weight| any | more(weight)) {
                let tokens = some.iter().copied().zip(first..);
                self.candidates.extend(tokens.filter(|(weight, _)| more(*weight)));
            }
            first += some.len() as u32;
        }
    }

    fn keep_top_p(&mut self, total: f64) {
        if self.options.top_p >= 1.0 {
            return;
        }
        // A few candidates nearly always suffice, and sorting the whole vocabulary costs more than
        // a small model's step.
        let mut sorted = 64;
        loop {
            self.sort_first(sorted);
            let mut sum = 0.0;
            let enough = self.candidates.iter().take(sorted).position(|(weight, _)| {
                sum += f64::from(*weight);
                sum >= f64::from(self.options.top_p) * total
            });
            if let Some(last) = enough {
                self.candidates.truncate(last + 1);
                return;
            }
            if sorted >= self.candidates.len() {
                return;
            }
            sorted *= 8;
        }
    }

    fn keep_min_p(&mut self) {
        if self.options.min_p > 0.0 {
            let least = self.options.min_p.min(1.0);
            self.candidates.retain(|(weight, _)| *weight >= least);
        }
    }

    /// `random` is in [0, 1).
    fn choose(&self, random: f64) -> Option<u32> {
        let weights = self.candidates.iter().map(|(weight, _)| *weight);
        let total: f64 = weights.clone().map(f64::from).sum();
        chosen(weights, random * total).map(|at| self.candidates[at].1)
    }

    /// `position` is in [0, the sum of all weights).
    fn choose_among_all(&self, position: f64) -> Option<u32> {
        let last = self.sums.iter().rposition(|sum| *sum > 0.0)?;
        let (mut left, mut piece) = (position, 0);
        while piece < last && left >= self.sums[piece] {
            left -= self.sums[piece];
            piece += 1;
        }
        let first = piece * TERMS;
        let weights = self.weights[first..].iter().copied().take(TERMS);
        chosen(weights, left).map(|at| (first + at) as u32)
    }
}

/// The index of the first weight at which the cumulative sum exceeds `position`.
/// The last index if none does, since rounding may leave a remainder.
fn chosen(weights: impl Iterator<Item = f32>, position: f64) -> Option<usize> {
    let (mut left, mut last) = (position, None);
    for (at, weight) in weights.enumerate() {
        left -= f64::from(weight);
        if weight > 0.0 {
            last = Some(at);
        }
        if left < 0.0 {
            break;
        }
    }
    last
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014): small and
/// portable.
#[derive(Clone, Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1): the upper 53 bits.
    fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests;
