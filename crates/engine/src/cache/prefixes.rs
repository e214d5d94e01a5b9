//! Finished sequences whose keys and values the next request may share.

use super::{Cache, Table};

/// Finished sequences, the latest last. A match compares tokens; a hit shares blocks and moves nothing.
#[derive(Debug, Default)]
pub struct Prefixes {
    kept: Vec<(Vec<u32>, Table)>,
}

impl Prefixes {
    /// A table that holds the longest kept prefix of `prompt`, at most `limit` tokens; empty if there is none.
    pub fn attach(&mut self, cache: &mut Cache, prompt: &[u32], limit: usize) -> Table {
        let common = |kept: &[u32]| kept.iter().zip(prompt).take(limit).take_while(|(a, b)| a == b).count();
        let usable = self.kept.iter().map(|(tokens, table)| cache.usable(table, common(tokens)));
        let best = usable.enumerate().map(|(at, length)| (length, at)).max();
        let Some((length @ 1.., at)) = best else { return Table::default() };
        let hit = self.kept.remove(at);
        match cache.share(&hit.1, length) {
            Some(table) => {
                self.kept.push(hit);
                table
            }
            // State that can't be shared goes over to the sequence that goes on.
            None => hit.1,
        }
    }

    /// Keeps the computed `tokens` of a finished sequence; sequences that it extends are given up.
    pub fn keep(&mut self, cache: &mut Cache, mut tokens: Vec<u32>, table: Table) {
        tokens.truncate(table.len());
        let mut at = 0;
        while at < self.kept.len() {
            if tokens.starts_with(&self.kept[at].0) {
                cache.release(self.kept.remove(at).1);
            } else {
                at += 1;
            }
        }
        self.kept.push((tokens, table));
    }

    /// Gives up the sequence that was not used for the longest time; false if there is none.
    pub fn evict(&mut self, cache: &mut Cache) -> bool {
        if self.kept.is_empty() {
            return false;
        }
        cache.release(self.kept.remove(0).1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Room;

    fn written(cache: &mut Cache, mut table: Table, tokens: usize) -> Table {
        cache.reserve(&mut table, tokens).unwrap();
        let more = tokens - table.len();
        table.advance(more);
        table
    }

    /// Keeps `tokens` as a finished sequence.
    fn keep(cache: &mut Cache, prefixes: &mut Prefixes, tokens: &[u32]) {
        let table = written(cache, Table::default(), tokens.len());
        prefixes.keep(cache, tokens.to_vec(), table);
    }

    #[test]
    fn the_longest_common_prefix_is_shared_and_the_least_recent_evicted() {
        let mut cache = Cache::new(&Room::new(8 * 32, 1, 8, None), false);
        let mut prefixes = Prefixes::default();
        for tokens in [[1, 2, 3], [1, 2, 4], [9, 9, 9]] {
            keep(&mut cache, &mut prefixes, &tokens);
        }
        let table = prefixes.attach(&mut cache, &[1, 2, 3, 4], 3);
        assert_eq!((table.len(), cache.free().0), (3, 5));
        cache.release(table);
        assert_eq!(prefixes.attach(&mut cache, &[7], 1).len(), 0);
        assert!(prefixes.evict(&mut cache), "1 2 4 goes first: 1 2 3 was used");
        assert_eq!(prefixes.attach(&mut cache, &[1, 2, 4], 3).len(), 2);
    }

    #[test]
    fn a_sequence_replaces_those_that_it_extends() {
        let mut cache = Cache::new(&Room::new(4 * 32, 1, 8, None), false);
        let mut prefixes = Prefixes::default();
        for tokens in [&[1, 2][..], &[1, 2, 3, 4]] {
            keep(&mut cache, &mut prefixes, tokens);
        }
        assert_eq!(cache.free().0, 3);
    }

    #[test]
    fn recurrent_state_goes_on_from_its_end_only() {
        let mut cache = Cache::new(&Room::new(8 * 32, 1, 8, None), true);
        let mut prefixes = Prefixes::default();
        keep(&mut cache, &mut prefixes, &[1, 2, 3]);
        assert_eq!(prefixes.attach(&mut cache, &[1, 2, 4, 5], 3).len(), 0);
        let table = prefixes.attach(&mut cache, &[1, 2, 3, 5], 3);
        assert_eq!(table.len(), 3);
        assert!(!prefixes.evict(&mut cache), "the state is the new sequence's now");
        cache.release(table);
        assert_eq!(cache.free().0, 8);
    }

    #[test]
    fn slots_run_out_and_come_back() {
        let mut cache = Cache::new(&Room::new(8 * 32, 1, 8, None), true);
        let tables: Vec<Table> = (0..3).map(|_| written(&mut cache, Table::default(), 5)).collect();
        assert_eq!(cache.reserve(&mut Table::default(), 5), None);
        tables.into_iter().for_each(|table| cache.release(table));
        assert!(cache.reserve(&mut Table::default(), 5).is_some());
    }

    #[test]
    fn what_a_window_has_passed_is_forgotten() {
        let mut cache = Cache::new(&Room::new(4096, 1, 64, Some(64)), false);
        let blocks = cache.free().1;
        let mut table = Table::default();
        let mut prefixes = Prefixes::default();
        for end in (64..=2048).step_by(64) {
            table = written(&mut cache, table, end);
            assert!(blocks - cache.free().1 <= (64 + 256 + 64) / 32 + 2, "{end} tokens");
        }
        let tokens: Vec<u32> = (0..2048).collect();
        prefixes.keep(&mut cache, tokens.clone(), table);
        let check = |cache: &mut Cache, prefixes: &mut Prefixes, common: usize, expected: usize| {
            let mut prompt = tokens[..common].to_vec();
            prompt.extend([9999, 9999]);
            let table = prefixes.attach(cache, &prompt, prompt.len() - 1);
            assert_eq!(table.len(), expected);
            cache.release(table);
        };
        check(&mut cache, &mut prefixes, 2048, 2048);
        check(&mut cache, &mut prefixes, 1900, 1900);
        check(&mut cache, &mut prefixes, 1000, 0);
    }
}
