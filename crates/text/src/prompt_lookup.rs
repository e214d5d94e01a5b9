//! Speculative decoding by prompt lookup: draft tokens, and estimates of their acceptance.
//!
//! The tokens that followed the latest tokens earlier, in the sequence or in a previous answer, may
//! follow again.
//! Calls repeat parts of the prompt, and agents repeat calls.
//! If both texts contain the latest tokens, acceptance depends on whether both continue alike.
//! A draft token only adds rows to the ones that a step computes anyway.
//! Each token is sampled as it would be without drafts, from the logits of its own row.
//! The first draft token that differs from the sampled one is rejected together with all later
//! ones.
//! So answers are identical with and without drafts, greedy or sampled.
//! Forced tokens of a grammar aren't draft tokens: its mask permits no other, so they are appended
//! without being sampled.
//! Pure: no tensors, no clock.
//! Source: Saxena 2023, <https://github.com/apoorvumang/prompt-lookup-decoding>.

/// Most tokens of a draft.
/// A longer draft would cost more rows when it is rejected, and gains little.
pub const MAX_DRAFT_TOKENS: usize = 32;

/// Most tokens compared for a match: longer matches aren't better.
const MAX_MATCH: usize = 16;

/// Lengths of the n-grams whose earlier continuation is drafted, the longest match first.
const NGRAMS: [usize; 4] = [8, 4, 2, 1];

/// Draft tokens in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// The features of each.
    pub features: Vec<Features>,
}

/// The features by which the acceptance of a draft token is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// How many tokens before the draft token matched at its earlier occurrence, at most
    /// `MAX_MATCH`.
    pub matched: usize,
    /// How the other text continues, from which the draft wasn't taken.
    pub other: OtherText,
}

/// How the text that a draft wasn't taken from continues, up to a draft token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherText {
    /// It doesn't contain the latest tokens.
    NoMatch,
    /// With the same tokens.
    Agrees,
    /// With other tokens, or it ends.
    Differs,
}

impl Draft {
    /// Drops the first token for which `ends` is true, and all later ones.
    pub fn end(&mut self, ends: impl Fn(u32) -> bool) {
        let end = self.tokens.iter().position(|&token| ends(token)).unwrap_or(self.tokens.len());
        self.tokens.truncate(end);
        self.features.truncate(end);
    }

    /// How many of the first `rows` tokens are accepted, given the `sampled` tokens.
    pub fn accepted(&self, rows: usize, sampled: &[u32]) -> usize {
        self.tokens[..rows].iter().zip(sampled).take_while(|(draft, sampled)| draft == sampled).count()
    }
}

/// Acceptance rates of draft tokens: a moving average for each class of features.
/// It learns from all drafts, computed or not, so that it notices as soon as computing a class
/// becomes worthwhile.
///
/// Replays of 61 recorded turns with tools on two models, where a row costs 10 to 40 % of a
/// single-row step, show that anything simpler is slower.
/// A single average loses 5 to 10 % of the tokens per second, and six averages up to 3 %.
/// Drafts of four tokens, made while half of them are accepted, lose 10 to 15 %.
#[derive(Clone, Debug)]
pub struct Acceptance([[f64; 5]; 3]);

impl Default for Acceptance {
    fn default() -> Self {
        // Initial values; they hardly matter after a few dozen tokens.
        Acceptance([[0.2, 0.4, 0.6, 0.7, 0.8], [0.7, 0.7, 0.7, 0.7, 0.8], [0.2, 0.3, 0.5, 0.6, 0.6]])
    }
}

impl Acceptance {
    /// The weight of the latest draft token: averages over about thirty of them.
    const WEIGHT: f64 = 1.0 / 32.0;

    /// The indices of the average for these features.
    fn class(features: &Features) -> (usize, usize) {
        let length = match features.matched {
            ..2 => 0,
            2..4 => 1,
            4..8 => 2,
            8..MAX_MATCH => 3,
            MAX_MATCH.. => 4,
        };
        (features.other as usize, length)
    }

    /// Learns from the tokens that were `sampled` where `draft` was made; tokens after the first
    /// rejected one are no evidence.
    pub fn learn(&mut self, draft: &Draft, sampled: &[u32]) {
        for ((token, features), sampled) in draft.tokens.iter().zip(&draft.features).zip(sampled) {
            let (other, length) = Self::class(features);
            let average = &mut self.0[other][length];
            *average += (f64::from(u8::from(token == sampled)) - *average) * Self::WEIGHT;
            if token != sampled {
                return;
            }
        }
    }

    /// The probability for each token of `draft` that it and all before it are accepted.
    pub fn probabilities(&self, draft: &Draft) -> Vec<f64> {
        let mut all = 1.0;
        let each = draft.features.iter().map(|features| {
            let (other, length) = Self::class(features);
            all *= self.0[other][length];
            all
        });
        each.collect()
    }
}

/// The positions of n-grams in a growing text.
#[derive(Clone, Debug)]
struct NgramIndex {
    /// Maps the hash of an n-gram to the number of tokens up to the end of its latest occurrence; 0
    /// = none.
    /// Another n-gram may have overwritten the entry, so readers compare the tokens.
    ends: Vec<u32>,
    /// How many tokens are indexed.
    entered: usize,
}

impl NgramIndex {
    /// An index of a text of at most `limit` tokens.
    /// Cost: up to 64 bytes per token, allocated as it grows.
    fn new(limit: usize) -> Self {
        let entries = limit.clamp(256, 1 << 20).next_power_of_two() * 2 * NGRAMS.len();
        NgramIndex { ends: vec![0; entries], entered: 0 }
    }

    /// Clears the index.
    fn clear(&mut self) {
        self.ends.fill(0);
        self.entered = 0;
    }

    /// Indexes `text` up to its token `end`.
    fn enter(&mut self, text: &[u32], end: usize) {
        for end in self.entered + 1..=end {
            for count in NGRAMS.into_iter().filter(|count| *count <= end) {
                let entry = self.entry(&text[end - count..end]);
                self.ends[entry] = end as u32;
            }
            self.entered = end;
        }
    }

    /// The end of the longest match with the last of `tokens` in the indexed `text`, and the number
    /// of matching tokens.
    fn find(&self, text: &[u32], tokens: &[u32]) -> Option<(usize, usize)> {
        NGRAMS.into_iter().filter(|count| *count <= tokens.len()).find_map(|count| {
            let end = self.ends[self.entry(&tokens[tokens.len() - count..])] as usize;
            let before = text[..end].iter().rev().zip(tokens.iter().rev()).take(MAX_MATCH);
            let matched = before.take_while(|(a, b)| a == b).count();
            (matched >= count).then_some((end, matched))
        })
    }

    fn entry(&self, tokens: &[u32]) -> usize {
        // Multiplication propagates upwards, so the high bits are used.
        // Constant: 2^64 divided by the golden ratio (Knuth, volume 3, 6.4).
        let mix = |hash: u64, token: &u32| (hash ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = tokens.iter().fold(tokens.len() as u64, |hash, token| mix(hash.rotate_left(23), token));
        (hash >> (u64::BITS - self.ends.len().trailing_zeros())) as usize
    }
}

/// Drafts likely continuations of one sequence.
#[derive(Clone, Debug)]
pub struct PromptLookup(NgramIndex);

impl PromptLookup {
    /// Drafts for a sequence of at most `limit` tokens.
    /// Cost: up to 64 bytes per token, allocated as it grows.
    pub fn new(limit: usize) -> Self {
        PromptLookup(NgramIndex::new(limit))
    }

    /// Drafts at most `most` of the tokens that follow `tokens`, which extend those of the previous
    /// call.
    /// The draft is the continuation of the longest match in `tokens`, or in the earlier `answers`
    /// if that match is longer.
    pub fn propose(&mut self, tokens: &[u32], answers: Option<&AnswerHistory>, most: usize) -> Draft {
        // All but the latest token, which is looked up and has no continuation yet.
        self.0.enter(tokens, tokens.len().saturating_sub(1));
        let own = self.0.find(tokens, tokens).map(|found| (tokens, found));
        let elsewhere = answers.and_then(|answers| {
            Some((answers.tokens.as_slice(), answers.index.find(&answers.tokens, tokens)?))
        });
        let (best, other) = match (own, elsewhere) {
            (Some(own), Some(elsewhere)) if elsewhere.1.1 > own.1.1 => (elsewhere, Some(own)),
            (Some(own), elsewhere) => (own, elsewhere),
            (None, Some(elsewhere)) => (elsewhere, None),
            (None, None) => return Draft::default(),
        };
        let (text, (end, matched)) = best;
        let mut draft = Draft::default();
        let mut agreement = other.map_or(OtherText::NoMatch, |_| OtherText::Agrees);
        for drafted in 0..most {
            // A match that has reached the end continues with the draft itself: a cycle.
            let token = match (end + drafted).checked_sub(text.len()) {
                None => text[end + drafted],
                Some(before) if std::ptr::eq(text, tokens) => draft.tokens[before],
                Some(_) => break,
            };
            if other.is_some_and(|(text, (end, _))| text.get(end + drafted) != Some(&token)) {
                agreement = OtherText::Differs;
            }
            draft.tokens.push(token);
            draft.features.push(Features { matched: (matched + drafted).min(MAX_MATCH), other: agreement });
        }
        draft
    }
}

/// The latest answers of other conversations, since agents repeat calls.
#[derive(Clone, Debug)]
pub struct AnswerHistory {
    tokens: Vec<u32>,
    index: NgramIndex,
}

impl AnswerHistory {
    /// Most tokens kept; then the older half is dropped.
    /// Cost: 68 bytes per token.
    const LIMIT: usize = 8192;
    /// Tokens before an answer that are kept with it, so that its beginning can be drafted.
    const BEFORE: usize = 8;

    /// Adds the answer in `tokens`, which follows the first `prompt` tokens.
    pub fn remember(&mut self, tokens: &[u32], prompt: usize) {
        let answer = &tokens[prompt.saturating_sub(Self::BEFORE)..];
        let answer = &answer[..answer.len().min(Self::LIMIT / 2)];
        if self.tokens.len() + answer.len() > Self::LIMIT {
            self.tokens.drain(..self.tokens.len() / 2);
            self.index.clear();
        }
        self.tokens.extend_from_slice(answer);
        self.index.enter(&self.tokens, self.tokens.len());
    }
}

impl Default for AnswerHistory {
    fn default() -> Self {
        let mut index = NgramIndex::new(Self::LIMIT);
        // Allocate the memory at once, so that it doesn't grow.
        index.clear();
        AnswerHistory { tokens: Vec::with_capacity(Self::LIMIT), index }
    }
}

/// Answers by salt: one tenant's answers are never drafts for another's.
#[derive(Debug, Default)]
pub struct AnswerHistories(Vec<(String, AnswerHistory)>);

impl AnswerHistories {
    /// Most salts kept, the latest ones.
    const LIMIT: usize = 16;

    /// The answers under `salt`.
    pub fn under(&self, salt: &str) -> Option<&AnswerHistory> {
        self.0.iter().find(|(known, _)| known == salt).map(|(_, answers)| answers)
    }

    /// Adds the answer in `tokens`, which follows the first `prompt` tokens.
    pub fn remember(&mut self, salt: &str, tokens: &[u32], prompt: usize) {
        let known = self.0.iter().position(|(known, _)| known == salt);
        let mut entry = match known {
            Some(at) => self.0.remove(at),
            None => (salt.to_owned(), AnswerHistory::default()),
        };
        entry.1.remember(tokens, prompt);
        self.0.truncate(Self::LIMIT - 1);
        self.0.insert(0, entry);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(tokens: &[u32], most: usize, expected: &[u32]) -> Draft {
        let draft = PromptLookup::new(64).propose(tokens, None, most);
        assert_eq!(draft.tokens, expected, "{tokens:?}");
        draft
    }

    #[test]
    fn what_followed_the_last_occurrence_is_drafted() {
        let draft = check(&[1, 2, 3, 4, 5, 6, 9, 1, 2, 3], 3, &[4, 5, 6]);
        let alone = |matched| Features { matched, other: OtherText::NoMatch };
        assert_eq!(draft.features, [3, 4, 5].map(alone));
        check(&[7, 1, 2, 3, 8, 1, 2], 2, &[3, 8]);
        // The latest of several matches.
        check(&[1, 2, 5, 1, 2, 6, 1, 2], 1, &[6]);
        // The longer match before the shorter one.
        check(&[1, 2, 3, 4, 5, 7, 9, 3, 4, 6, 1, 2, 3, 4], 1, &[5]);
        check(&[1, 2, 3, 1], 2, &[2, 3]);
        check(&[1, 2, 3], 4, &[]);
        check(&[], 4, &[]);
        // A cycle continues endlessly.
        check(&[1, 2, 1, 2, 1], 7, &[2, 1, 2, 1, 2, 1, 2]);
        check(&[4, 4, 4], 3, &[4, 4, 4]);
    }

    #[test]
    fn proposing_again_is_the_same_and_new_tokens_are_known() {
        let mut lookup = PromptLookup::new(64);
        let mut tokens = vec![1, 2, 3, 4, 1, 2];
        for expected in [3, 4, 1, 2, 3] {
            for _ in 0..2 {
                assert_eq!(lookup.propose(&tokens, None, 1).tokens, [expected], "{tokens:?}");
            }
            tokens.push(expected);
        }
        tokens.extend([9, 1, 2]);
        assert_eq!(lookup.propose(&tokens, None, 2).tokens, [3, 9], "which stood there last");
    }

    #[test]
    fn earlier_answers_are_drafted_under_the_same_salt_only() {
        let mut histories = AnswerHistories::default();
        histories.remember("a", &[90, 91, 1, 2, 3, 4, 5], 2);
        let propose = |histories: &AnswerHistories, salt: &str, tokens: &[u32]| {
            PromptLookup::new(64).propose(tokens, histories.under(salt), 3).tokens
        };
        assert_eq!(propose(&histories, "a", &[7, 90, 91]), [1, 2, 3]);
        assert_eq!(propose(&histories, "a", &[7, 3, 4]), [5], "no more was answered");
        assert!(propose(&histories, "b", &[7, 90, 91]).is_empty());
        // The longer match wins, and of equal ones that in the conversation.
        assert_eq!(propose(&histories, "a", &[3, 8, 1, 2, 3]), [4, 5]);
        assert_eq!(propose(&histories, "a", &[6, 2, 3, 8, 9, 6, 2, 3]), [8, 9, 6]);
        assert_eq!(propose(&histories, "a", &[2, 3, 8, 9, 2, 3]), [8, 9, 2]);
        for salt in 0..2 * AnswerHistories::LIMIT {
            histories.remember(&salt.to_string(), &[90, 91, 6], 2);
        }
        assert!(propose(&histories, "a", &[7, 90, 91]).is_empty(), "forgotten");
        let last = (2 * AnswerHistories::LIMIT - 1).to_string();
        for at in 0..1000 {
            histories.remember(&last, &[80, 81, at, at, at, at, at, at, at, at, at, at], 2);
        }
        assert_eq!(propose(&histories, &last, &[80, 81, 999]), [999, 999, 999], "the latest are known");
        assert!(propose(&histories, &last, &[5, 90, 91]).is_empty(), "the earliest are forgotten");
        assert!(histories.under(&last).unwrap().tokens.len() <= AnswerHistory::LIMIT);
    }

    #[test]
    fn a_token_in_both_texts_is_accepted_more_often() {
        let mut histories = AnswerHistories::default();
        histories.remember("a", &[90, 91, 1, 2, 3, 4, 5], 2);
        let propose = |tokens: &[u32]| {
            let draft = PromptLookup::new(64).propose(tokens, histories.under("a"), 4);
            (draft.tokens, draft.features.into_iter().map(|features| features.other).collect::<Vec<_>>())
        };
        let (agrees, differs) = (OtherText::Agrees, OtherText::Differs);
        // After they differ, later tokens have no counterpart.
        assert_eq!(
            propose(&[1, 2, 3, 7, 5, 1, 2]),
            (vec![3, 7, 5, 1], vec![agrees, differs, differs, differs])
        );
        assert_eq!(propose(&[6, 2, 8, 90, 91, 1, 2]), (vec![3, 4, 5], vec![differs; 3]));
        assert_eq!(propose(&[7, 3, 4]), (vec![5], vec![OtherText::NoMatch]));

        let features = |other| Features { matched: 4, other };
        let draft = |other| Draft { tokens: vec![1], features: vec![features(other)] };
        let mut acceptance = Acceptance::default();
        for sampled in [[1], [2]].iter().cycle().take(200) {
            acceptance.learn(&draft(agrees), &[1]);
            acceptance.learn(&draft(differs), sampled);
        }
        let probabilities = [agrees, differs].map(|other| acceptance.probabilities(&draft(other))[0]);
        assert!(probabilities[0] > 0.98 && (0.4..0.6).contains(&probabilities[1]), "{probabilities:?}");
    }

    #[test]
    fn nothing_is_drafted_beyond_the_end_of_the_turn() {
        let features = |matched| Features { matched, other: OtherText::NoMatch };
        let mut draft = Draft { tokens: vec![1, 2, 3, 2], features: [4, 5, 6, 7].map(features).to_vec() };
        draft.end(|token| token == 9);
        assert_eq!(draft.tokens.len(), 4);
        draft.end(|token| token == 2);
        assert_eq!(draft, Draft { tokens: vec![1], features: vec![features(4)] });
    }

    #[test]
    fn acceptance_is_learned() {
        let features = |matched| Features { matched, other: OtherText::NoMatch };
        let draft = Draft { tokens: vec![1, 2, 3], features: [16, 1, 1].map(features).to_vec() };
        let mut acceptance = Acceptance::default();
        let before = acceptance.probabilities(&draft);
        assert!(before[0] > before[1] && before[1] > before[2] && before[2] > 0.0, "{before:?}");
        for _ in 0..200 {
            acceptance.learn(&draft, &[1, 2, 3, 4]);
        }
        assert!(acceptance.probabilities(&draft)[2] > 0.98, "{acceptance:?}");
        for _ in 0..200 {
            acceptance.learn(&draft, &[1, 9, 3]);
        }
        let probabilities = acceptance.probabilities(&draft);
        assert!(probabilities[0] > 0.98 && probabilities[1] < 0.02, "{acceptance:?}");
        assert_eq!(
            (draft.accepted(3, &[1, 2, 9]), draft.accepted(1, &[1, 2]), draft.accepted(3, &[])),
            (2, 1, 0)
        );
    }

    proptest! {
        /// For every sequence, as many tokens before a draft token match earlier ones as `matched`
        /// states.
        #[test]
        fn a_draft_token_stood_there_before(tokens in prop::collection::vec(0..4u32, 0..120), most in 0..9usize) {
            let mut lookup = PromptLookup::new(1);
            for end in 0..=tokens.len() {
                let draft = lookup.propose(&tokens[..end], None, most);
                prop_assert!(draft.tokens.len() <= most && draft.features.len() == draft.tokens.len());
                let text = [&tokens[..end], &draft.tokens].concat();
                for at in end..text.len() {
                    let Features { matched, other } = draft.features[at - end];
                    prop_assert_eq!(other, OtherText::NoMatch);
                    let before = &text[at - matched..at];
                    prop_assert!(matched >= 1 && (0..at - matched).any(|from| text[from..].starts_with(before)
                        && text[from + matched] == text[at]), "{:?} {:?}", text, draft);
                }
            }
        }
    }
}
