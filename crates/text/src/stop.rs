//! Texts that end a turn, found regardless of token boundaries.

/// Searches a stream for stop texts and holds back what may be the beginning of one.
#[derive(Debug)]
pub struct StopTexts {
    texts: Vec<String>,
    /// How many of the texts are reported; the others end a turn silently.
    named: usize,
    held: String,
    /// Index of the text found.
    found: Option<usize>,
}

impl StopTexts {
    /// `others` stop as well, but aren't reported.
    /// Empty texts are ignored.
    pub fn new(texts: &[String], others: &[String]) -> Self {
        let some = |texts: &[String]| texts.iter().filter(|text| !text.is_empty()).cloned().collect();
        let (mut texts, others): (Vec<String>, Vec<String>) = (some(texts), some(others));
        let named = texts.len();
        texts.extend(others);
        StopTexts { texts, named, held: String::new(), found: None }
    }

    /// The text found, unless it is one of `others`.
    pub fn found(&self) -> Option<&str> {
        self.found.filter(|&at| at < self.named).map(|at| self.texts[at].as_str())
    }

    /// Whether any of the texts was found.
    pub fn came(&self) -> bool {
        self.found.is_some()
    }

    /// Returns the part of the stream that certainly isn't part of a stop text, and whether one was
    /// found.
    /// After that, all further text is dropped.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        if self.found.is_some() {
            return (String::new(), true);
        }
        self.held.push_str(text);
        // The first to be complete, so that the result doesn't depend on how the stream is cut.
        let found = self.texts.iter().enumerate().filter_map(|(index, stop)| {
            let at = self.held.find(stop.as_str())?;
            Some((at + stop.len(), at, index))
        });
        if let Some((_, at, index)) = found.min() {
            self.found = Some(index);
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let may_begin = |at: usize| self.texts.iter().any(|stop| stop.starts_with(&self.held[at..]));
        let keep =
            self.held.char_indices().map(|(at, _)| at).find(|&at| may_begin(at)).unwrap_or(self.held.len());
        let rest = self.held.split_off(keep);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The text that was held back and didn't become a stop text.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(texts: &[&str], pieces: &[&str], expected: &str, stopped: bool) {
        let mut stop = StopTexts::new(&texts.iter().map(ToString::to_string).collect::<Vec<_>>(), &[]);
        let mut out = String::new();
        let mut ended = false;
        for piece in pieces {
            let (text, now) = stop.push(piece);
            out.push_str(&text);
            ended |= now;
        }
        if !ended {
            out.push_str(&stop.finish());
        }
        assert_eq!((out.as_str(), ended), (expected, stopped), "{texts:?} in {pieces:?}");
    }

    #[test]
    fn a_stop_text_ends_the_stream_wherever_it_is_cut() {
        check(&["END"], &["one E", "N", "D two"], "one ", true);
        check(&["END"], &["one E", "N"], "one EN", false);
        check(&["bc", "abcd"], &["xab", "cd"], "xa", true);
        check(&[], &["a", "b"], "ab", false);
        check(&["ä!"], &["xä", "y"], "xäy", false);
    }

    #[test]
    fn what_came_is_known_unless_it_is_nobodys_business() {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let found = |text: &str| {
            let mut stop = StopTexts::new(&texts(&["", "one", "two"]), &texts(&["three"]));
            let (_, stopped) = stop.push(text);
            (stopped, stop.found().map(str::to_owned))
        };
        assert_eq!(found("two one"), (true, Some("two".into())));
        assert_eq!(found("a three b one"), (true, None));
        assert_eq!(found("on"), (false, None));
    }

    proptest! {
        #[test]
        fn cutting_changes_nothing(text in "[ab!]{0,30}", stop in "[ab!]{1,3}", at in 0..30usize) {
            let at = at.min(text.len());
            let whole = text.split(&stop).next().unwrap();
            check(&[&stop], &[&text[..at], &text[at..]], whole, whole.len() < text.len());
        }
    }
}
