//! Guesses at the tokens that come next, and how likely they are to come.
//!
//! What followed when the latest tokens stood in the sequence before, or in an earlier answer, may
//! follow again: calls repeat what the prompt says, and agents make the same calls.
//! Where both have something to say, it tells much whether it is the same.
//! A guess only decides which rows a step computes beside those that it has to.
//! Each token is drawn as it would be without, from the logits of its own row, and a draft is over
//! where another token comes.
//! So answers are the same with and without, greedy or sampled.
//! Tokens that a grammar forces are no guesses: its mask leaves no other, so they are appended
//! without a draw.
//! Pure: no tensors, no clock.

/// Most tokens of a draft.
/// More would cost a sequence that is cut off more rows, and wins little.
pub const MOST: usize = 32;

/// Tokens of a match that are compared at most: longer ones are as good.
const COMPARED: usize = 16;

/// How many tokens must agree with the latest ones for what followed them to be a guess: the
/// longest match first.
const NGRAMS: [usize; 4] = [8, 4, 2, 1];

/// Tokens that may come next, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// What speaks for each of them.
    pub grounds: Vec<Ground>,
}

/// What speaks for a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ground {
    /// How many tokens before it it followed earlier on, at most [`COMPARED`].
    pub matched: usize,
    /// Of the sequence and what was said elsewhere, what the other one says.
    pub other: Other,
}

/// What another text says to a guess and to all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// It doesn't have the latest tokens.
    Silent,
    /// The same.
    Agrees,
    /// Something else, or no more.
    Differs,
}

impl Draft {
    /// Drops the first token that `ends` the text, and what follows it.
    pub fn end(&mut self, ends: impl Fn(u32) -> bool) {
        let kept = self.tokens.iter().position(|&token| ends(token)).unwrap_or(self.tokens.len());
        self.tokens.truncate(kept);
        self.grounds.truncate(kept);
    }

    /// How many of the first `rows` tokens are those that `came`.
    pub fn agreed(&self, rows: usize, came: &[u32]) -> usize {
        self.tokens[..rows].iter().zip(came).take_while(|(guessed, came)| guessed == came).count()
    }
}

/// How often guesses come true, by what the other text says and the length of the match.
/// Learned from all that are made, computed or not, so that what is not worth computing is found
/// worth it as soon as it is.
#[derive(Clone, Debug)]
pub struct Odds([[f64; 5]; 3]);

impl Default for Odds {
    fn default() -> Self {
        // A start only: some dozens of tokens later it hardly counts.
        Odds([[0.2, 0.4, 0.6, 0.7, 0.8], [0.7, 0.7, 0.7, 0.7, 0.8], [0.2, 0.3, 0.5, 0.6, 0.6]])
    }
}

impl Odds {
    /// The share of the latest guess in what is known: an estimate over some thirty of them.
    const NEWS: f64 = 1.0 / 32.0;

    fn class(matched: usize) -> usize {
        match matched {
            ..2 => 0,
            2..4 => 1,
            4..8 => 2,
            8..COMPARED => 3,
            COMPARED.. => 4,
        }
    }

    /// Learns what came where `draft` was guessed; what follows its first mistake says nothing.
    pub fn learn(&mut self, draft: &Draft, came: &[u32]) {
        for ((guessed, ground), came) in draft.tokens.iter().zip(&draft.grounds).zip(came) {
            let odds = &mut self.0[ground.other as usize][Self::class(ground.matched)];
            *odds += (f64::from(u8::from(guessed == came)) - *odds) * Self::NEWS;
            if guessed != came {
                return;
            }
        }
    }

    /// For each token of `draft` the probability that it comes, and all before it.
    pub fn chances(&self, draft: &Draft) -> Vec<f64> {
        let mut all = 1.0;
        let chances = draft.grounds.iter().map(|ground| {
            all *= self.0[ground.other as usize][Self::class(ground.matched)];
            all
        });
        chances.collect()
    }
}

/// Where some tokens stand in a text that grows.
#[derive(Clone, Debug)]
struct Places {
    /// By the hash of some tokens, the number of tokens up to the latest place where they stood; 0 = none. Others may have taken the
    /// place: whoever reads compares the tokens.
    places: Vec<u32>,
    /// How many tokens are entered.
    entered: usize,
}

impl Places {
    /// For a text of at most `limit` tokens.
    /// Cost: up to 64 bytes for each of them, as they come.
    fn new(limit: usize) -> Self {
        let places = limit.clamp(256, 1 << 20).next_power_of_two() * 2 * NGRAMS.len();
        Places { places: vec![0; places], entered: 0 }
    }

    /// Forgets all of them.
    fn clear(&mut self) {
        self.places.fill(0);
        self.entered = 0;
    }

    /// Enters what `text` has up to its token `end` beside what is entered.
    fn enter(&mut self, text: &[u32], end: usize) {
        for end in self.entered + 1..=end {
            for count in NGRAMS.into_iter().filter(|count| *count <= end) {
                let place = self.place(&text[end - count..end]);
                self.places[place] = end as u32;
            }
            self.entered = end;
        }
    }

    /// How many tokens there are in `text`, as it was entered, up to the place where the last of
    /// `tokens` stood, and how many of them agree.
    fn find(&self, text: &[u32], tokens: &[u32]) -> Option<(usize, usize)> {
        NGRAMS.into_iter().filter(|count| *count <= tokens.len()).find_map(|count| {
            let at = self.places[self.place(&tokens[tokens.len() - count..])] as usize;
            let before = text[..at].iter().rev().zip(tokens.iter().rev()).take(COMPARED);
            let matched = before.take_while(|(a, b)| a == b).count();
            (matched >= count).then_some((at, matched))
        })
    }

    fn place(&self, tokens: &[u32]) -> usize {
        // Multiplication spreads upwards; the high bits are taken.
        // Constant: 2^64 over the golden ratio (Knuth, volume 3, 6.4).
        let mix = |hash: u64, token: &u32| (hash ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = tokens.iter().fold(tokens.len() as u64, |hash, token| mix(hash.rotate_left(23), token));
        (hash >> (u64::BITS - self.places.len().trailing_zeros())) as usize
    }
}

/// Finds where the latest tokens of one sequence stood before.
#[derive(Clone, Debug)]
pub struct Lookup(Places);

impl Lookup {
    /// For a sequence of at most `limit` tokens.
    /// Cost: up to 64 bytes for each of them, as they come.
    pub fn new(limit: usize) -> Self {
        Lookup(Places::new(limit))
    }

    /// A guess at no more than `most` of the tokens that follow `tokens`, which begin with those of
    /// the last call: what followed the longest match in them, or in what was `said` elsewhere
    /// where that is longer.
    pub fn propose(&mut self, tokens: &[u32], said: Option<&Said>, most: usize) -> Draft {
        // All but the latest: it is looked for, and nothing follows it.
        self.0.enter(tokens, tokens.len().saturating_sub(1));
        let own = self.0.find(tokens, tokens).map(|found| (tokens, found));
        let elsewhere =
            said.and_then(|said| Some((said.tokens.as_slice(), said.places.find(&said.tokens, tokens)?)));
        let (best, other) = match (own, elsewhere) {
            (Some(own), Some(elsewhere)) if elsewhere.1.1 > own.1.1 => (elsewhere, Some(own)),
            (Some(own), elsewhere) => (own, elsewhere),
            (None, Some(elsewhere)) => (elsewhere, None),
            (None, None) => return Draft::default(),
        };
        let (text, (at, matched)) = best;
        let mut draft = Draft::default();
        let mut says = other.map_or(Other::Silent, |_| Other::Agrees);
        for drafted in 0..most {
            // A place that has caught up with the end goes on with what it gave itself: a cycle.
            let token = match (at + drafted).checked_sub(text.len()) {
                None => text[at + drafted],
                Some(before) if std::ptr::eq(text, tokens) => draft.tokens[before],
                Some(_) => break,
            };
            if other.is_some_and(|(text, (at, _))| text.get(at + drafted) != Some(&token)) {
                says = Other::Differs;
            }
            draft.tokens.push(token);
            draft.grounds.push(Ground { matched: (matched + drafted).min(COMPARED), other: says });
        }
        draft
    }
}

/// What was answered before in other conversations: agents make the same calls again.
#[derive(Clone, Debug)]
pub struct Said {
    tokens: Vec<u32>,
    places: Places,
}

impl Said {
    /// Most tokens that are remembered; then the earlier half is forgotten.
    /// Cost: 68 bytes for each.
    const LIMIT: usize = 8192;
    /// Tokens before an answer that are remembered with it, so that its beginning can be guessed.
    const BEFORE: usize = 8;

    /// Remembers the answer that `tokens` have after `prompt` of them.
    pub fn remember(&mut self, tokens: &[u32], prompt: usize) {
        let answer = &tokens[prompt.saturating_sub(Self::BEFORE)..];
        let answer = &answer[..answer.len().min(Self::LIMIT / 2)];
        if self.tokens.len() + answer.len() > Self::LIMIT {
            self.tokens.drain(..self.tokens.len() / 2);
            self.places.clear();
        }
        self.tokens.extend_from_slice(answer);
        self.places.enter(&self.tokens, self.tokens.len());
    }
}

impl Default for Said {
    fn default() -> Self {
        let mut places = Places::new(Self::LIMIT);
        // So that its memory is had at once, and does not grow.
        places.clear();
        Said { tokens: Vec::with_capacity(Self::LIMIT), places }
    }
}

/// What was said under each salt: one tenant's answers are no guesses for another's.
#[derive(Debug, Default)]
pub struct Tenants(Vec<(String, Said)>);

impl Tenants {
    /// Most salts that are remembered, the latest ones.
    const LIMIT: usize = 16;

    /// What was said under `salt`.
    pub fn said(&self, salt: &str) -> Option<&Said> {
        self.0.iter().find(|(known, _)| known == salt).map(|(_, said)| said)
    }

    /// Remembers the answer that `tokens` have after `prompt` of them.
    pub fn remember(&mut self, salt: &str, tokens: &[u32], prompt: usize) {
        let known = self.0.iter().position(|(known, _)| known == salt);
        let mut entry = match known {
            Some(at) => self.0.remove(at),
            None => (salt.to_owned(), Said::default()),
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
        let draft = Lookup::new(64).propose(tokens, None, most);
        assert_eq!(draft.tokens, expected, "{tokens:?}");
        draft
    }

    #[test]
    fn what_followed_last_time_is_guessed() {
        let draft = check(&[1, 2, 3, 4, 5, 6, 9, 1, 2, 3], 3, &[4, 5, 6]);
        let silent = |matched| Ground { matched, other: Other::Silent };
        assert_eq!(draft.grounds, [3, 4, 5].map(silent));
        check(&[7, 1, 2, 3, 8, 1, 2], 2, &[3, 8]);
        // The latest of several.
        check(&[1, 2, 5, 1, 2, 6, 1, 2], 1, &[6]);
        // The longer match before the shorter.
        check(&[1, 2, 3, 4, 5, 7, 9, 3, 4, 6, 1, 2, 3, 4], 1, &[5]);
        check(&[1, 2, 3, 1], 2, &[2, 3]);
        check(&[1, 2, 3], 4, &[]);
        check(&[], 4, &[]);
        // A cycle goes on and on.
        check(&[1, 2, 1, 2, 1], 7, &[2, 1, 2, 1, 2, 1, 2]);
        check(&[4, 4, 4], 3, &[4, 4, 4]);
    }

    #[test]
    fn asking_again_is_the_same_and_what_came_is_known() {
        let mut lookup = Lookup::new(64);
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
    fn what_was_said_elsewhere_is_guessed_under_the_same_salt_only() {
        let mut tenants = Tenants::default();
        tenants.remember("a", &[90, 91, 1, 2, 3, 4, 5], 2);
        let propose = |tenants: &Tenants, salt: &str, tokens: &[u32]| {
            Lookup::new(64).propose(tokens, tenants.said(salt), 3).tokens
        };
        assert_eq!(propose(&tenants, "a", &[7, 90, 91]), [1, 2, 3]);
        assert_eq!(propose(&tenants, "a", &[7, 3, 4]), [5], "no more was said");
        assert!(propose(&tenants, "b", &[7, 90, 91]).is_empty());
        // The longer match is the better one, and of equals that in the conversation.
        assert_eq!(propose(&tenants, "a", &[3, 8, 1, 2, 3]), [4, 5]);
        assert_eq!(propose(&tenants, "a", &[6, 2, 3, 8, 9, 6, 2, 3]), [8, 9, 6]);
        assert_eq!(propose(&tenants, "a", &[2, 3, 8, 9, 2, 3]), [8, 9, 2]);
        for salt in 0..2 * Tenants::LIMIT {
            tenants.remember(&salt.to_string(), &[90, 91, 6], 2);
        }
        assert!(propose(&tenants, "a", &[7, 90, 91]).is_empty(), "forgotten");
        let last = (2 * Tenants::LIMIT - 1).to_string();
        for at in 0..1000 {
            tenants.remember(&last, &[80, 81, at, at, at, at, at, at, at, at, at, at], 2);
        }
        assert_eq!(propose(&tenants, &last, &[80, 81, 999]), [999, 999, 999], "the latest are known");
        assert!(propose(&tenants, &last, &[5, 90, 91]).is_empty(), "the earliest are forgotten");
        assert!(tenants.said(&last).unwrap().tokens.len() <= Said::LIMIT);
    }

    #[test]
    fn two_that_agree_are_better_than_one() {
        let mut tenants = Tenants::default();
        tenants.remember("a", &[90, 91, 1, 2, 3, 4, 5], 2);
        let propose = |tokens: &[u32]| {
            let draft = Lookup::new(64).propose(tokens, tenants.said("a"), 4);
            (draft.tokens, draft.grounds.into_iter().map(|ground| ground.other).collect::<Vec<_>>())
        };
        let (agrees, differs) = (Other::Agrees, Other::Differs);
        // Once they differ, what follows is no longer about the same.
        assert_eq!(
            propose(&[1, 2, 3, 7, 5, 1, 2]),
            (vec![3, 7, 5, 1], vec![agrees, differs, differs, differs])
        );
        assert_eq!(propose(&[6, 2, 8, 90, 91, 1, 2]), (vec![3, 4, 5], vec![differs; 3]));
        assert_eq!(propose(&[7, 3, 4]), (vec![5], vec![Other::Silent]));

        let ground = |other| Ground { matched: 4, other };
        let draft = |other| Draft { tokens: vec![1], grounds: vec![ground(other)] };
        let mut odds = Odds::default();
        for came in [[1], [2]].iter().cycle().take(200) {
            odds.learn(&draft(agrees), &[1]);
            odds.learn(&draft(differs), came);
        }
        let chances = [agrees, differs].map(|other| odds.chances(&draft(other))[0]);
        assert!(chances[0] > 0.98 && (0.4..0.6).contains(&chances[1]), "{chances:?}");
    }

    #[test]
    fn nothing_is_guessed_beyond_the_end() {
        let ground = |matched| Ground { matched, other: Other::Silent };
        let mut draft = Draft { tokens: vec![1, 2, 3, 2], grounds: [4, 5, 6, 7].map(ground).to_vec() };
        draft.end(|token| token == 9);
        assert_eq!(draft.tokens.len(), 4);
        draft.end(|token| token == 2);
        assert_eq!(draft, Draft { tokens: vec![1], grounds: vec![ground(4)] });
    }

    #[test]
    fn chances_are_learned() {
        let ground = |matched| Ground { matched, other: Other::Silent };
        let draft = Draft { tokens: vec![1, 2, 3], grounds: [16, 1, 1].map(ground).to_vec() };
        let mut odds = Odds::default();
        let before = odds.chances(&draft);
        assert!(before[0] > before[1] && before[1] > before[2] && before[2] > 0.0, "{before:?}");
        for _ in 0..200 {
            odds.learn(&draft, &[1, 2, 3, 4]);
        }
        assert!(odds.chances(&draft)[2] > 0.98, "{odds:?}");
        for _ in 0..200 {
            odds.learn(&draft, &[1, 9, 3]);
        }
        let chances = odds.chances(&draft);
        assert!(chances[0] > 0.98 && chances[1] < 0.02, "{odds:?}");
        assert_eq!((draft.agreed(3, &[1, 2, 9]), draft.agreed(1, &[1, 2]), draft.agreed(3, &[])), (2, 1, 0));
    }

    proptest! {
        /// Whatever the sequence: a guess followed as many equal tokens earlier on as it says.
        #[test]
        fn a_guess_stood_there_before(tokens in prop::collection::vec(0..4u32, 0..120), most in 0..9usize) {
            let mut lookup = Lookup::new(1);
            for end in 0..=tokens.len() {
                let draft = lookup.propose(&tokens[..end], None, most);
                prop_assert!(draft.tokens.len() <= most && draft.grounds.len() == draft.tokens.len());
                let text = [&tokens[..end], &draft.tokens].concat();
                for at in end..text.len() {
                    let Ground { matched, other } = draft.grounds[at - end];
                    prop_assert_eq!(other, Other::Silent);
                    let before = &text[at - matched..at];
                    prop_assert!(matched >= 1 && (0..at - matched).any(|from| text[from..].starts_with(before)
                        && text[from + matched] == text[at]), "{:?} {:?}", text, draft);
                }
            }
        }
    }
}
