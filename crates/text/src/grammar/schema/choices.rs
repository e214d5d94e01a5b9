//! Resolves counts of properties into choices of which properties are present.

/// Most alternatives into which a count of properties, or of distinct items, is resolved.
pub(super) const MOST_ALTERNATIVES: usize = 128;

/// Whether a key is present.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Presence {
    Always,
    Maybe,
    Never,
}

/// The ways in which an object can have the number of properties that its schema requires.
pub(super) struct Choices {
    /// Whether the object may have keys that aren't properties.
    open: bool,
    max: Option<u64>,
    /// For each way the presence of each property, and the minimum number of other keys.
    pub made: Vec<(Vec<Presence>, u64)>,
}

impl Choices {
    pub(super) fn new(open: bool, max: Option<u64>) -> Self {
        Choices { open, max, made: Vec::new() }
    }

    /// Settles the properties of `rest` one by one until no count depends on them; `None` if this
    /// takes too many alternatives.
    pub(super) fn resolve(&mut self, rest: &[Presence], settled: Vec<Presence>, min: u64) -> Option<()> {
        let always =
            settled.iter().chain(rest).filter(|presence| **presence == Presence::Always).count() as u64;
        let maybe = rest.iter().filter(|presence| **presence == Presence::Maybe).count() as u64;
        let missing = min.saturating_sub(always);
        let room = self.max.map(|max| max.checked_sub(always));
        match room {
            Some(None) => return Some(()),
            // A key that isn't a property may be written twice, so that only one such key counts.
            _ if missing > maybe + u64::from(self.open) => return Some(()),
            _ => {}
        }
        let fits = room.flatten().is_none_or(|room| room >= maybe && !self.open);
        if maybe == 0 || (missing == 0 && fits) {
            self.made.push(([settled, rest.to_vec()].concat(), missing));
            return (self.made.len() <= MOST_ALTERNATIVES).then_some(());
        }
        let at = rest.iter().position(|presence| *presence == Presence::Maybe).unwrap_or_default();
        for presence in [Presence::Always, Presence::Never] {
            let settled = [&settled, &rest[..at], &[presence]].concat();
            self.resolve(&rest[at + 1..], settled, min)?;
        }
        Some(())
    }
}
