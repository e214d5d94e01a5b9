use proptest::prelude::*;

use super::*;
use crate::cache::CacheConfig;

/// A cache of 32-token blocks with its prefix cache, and sequences that write what the test
/// specifies.
struct House {
    cache: Cache,
    prefixes: Prefixes,
}

impl House {
    fn new(blocks: usize, window: Option<usize>, recurrent: bool) -> Self {
        let cache = Cache::new(&CacheConfig::new(blocks * 32, 2, 8, window), recurrent);
        House { cache, prefixes: Prefixes::default() }
    }

    fn find(&self, prompt: &[u32]) -> Hit {
        self.prefixes.find(&self.cache, "", prompt, prompt.len())
    }

    /// Attaches the cached part of `prompt`.
    fn attach(&mut self, prompt: &[u32]) -> Table {
        let hit = self.find(prompt);
        self.prefixes.attach(&mut self.cache, &hit).0
    }

    /// Uses a prompt that is fully cached.
    fn use_again(&mut self, prompt: &[u32]) {
        let table = self.attach(prompt);
        self.cache.release(table);
    }

    /// Computes all of `tokens`, evicting as necessary.
    fn compute(&mut self, tokens: &[u32]) -> Table {
        let mut table = self.attach(tokens);
        while let Err(kind) = self.cache.reserve(&mut table, tokens.len()) {
            assert!(self.prefixes.evict(&mut self.cache, kind), "{kind:?}");
        }
        table.advance(tokens.len() - table.len());
        table
    }

    fn keep(&mut self, tokens: &[u32]) {
        self.keep_as(&Prefix::default(), tokens);
    }

    fn keep_as(&mut self, prefix: &Prefix, tokens: &[u32]) {
        let table = self.compute(tokens);
        self.prefixes.insert(&mut self.cache, prefix, tokens, table);
    }

    fn free(&self) -> usize {
        self.cache.free().0
    }
}

fn range(tokens: std::ops::Range<u32>) -> Vec<u32> {
    tokens.collect()
}

/// `tokens` followed by `others`.
fn then(tokens: std::ops::Range<u32>, others: std::ops::Range<u32>) -> Vec<u32> {
    tokens.chain(others).collect()
}

#[test]
fn the_longest_common_prefix_is_shared_wherever_prompts_diverge() {
    let mut house = House::new(16, None, false);
    house.keep(&range(0..100));
    assert_eq!(house.free(), 12);
    house.keep(&then(0..40, 500..560));
    // Its first block is shared; the second is a copy, and two are its own.
    assert_eq!(house.free(), 9);
    for (prompt, expected) in [
        (range(0..100), 100),
        (then(0..40, 500..560), 100),
        (then(0..40, 900..910), 40),
        (then(0..7, 900..910), 7),
        (range(900..910), 0),
    ] {
        assert_eq!(house.find(&prompt).len, expected, "{prompt:?}");
    }
    // Many at once, without copies.
    let tables: Vec<Table> = (0..5).map(|_| house.attach(&range(0..100))).collect();
    assert_eq!((house.free(), tables[4].len()), (9, 100));
}

#[test]
fn a_running_sequence_is_shared_and_goes_on_in_place() {
    let mut house = House::new(16, None, false);
    let tokens = range(0..200);
    let mut table = house.compute(&tokens[..50]);
    house.prefixes.learn(&mut house.cache, &Prefix::default(), &tokens, &table);
    assert_eq!(house.find(&tokens).len, 50);
    let other = house.attach(&then(0..50, 900..910));
    assert_eq!(house.cache.reserve(&mut table, 60).unwrap().full, [], "nobody has written after it");
    table.advance(10);
    house.prefixes.learn(&mut house.cache, &Prefix::default(), &tokens, &table);
    assert_eq!((house.find(&tokens).len, house.free()), (60, 14));
    let mut other = other;
    assert_eq!(house.cache.reserve(&mut other, 60).unwrap().full.len(), 1, "the tail is another's now");
}

#[test]
fn a_miss_has_its_reason() {
    let check = |house: &House, prompt: &[u32], len: usize, stop: Option<MissReason>| {
        let hit = house.find(prompt);
        assert_eq!((hit.len, hit.stop), (len, stop));
    };
    let mut house = House::new(4, None, false);
    check(&house, &[1], 0, None);
    house.keep(&range(0..60));
    check(&house, &range(0..90), 60, None);
    check(&house, &range(0..60), 60, None);
    let kept = range(40..46);
    check(&house, &then(0..40, 900..910), 40, Some(MissReason::Diverged { cached: kept.clone() }));
    check(&house, &[7], 0, Some(MissReason::Diverged { cached: range(0..6) }));
    house.keep(&range(1000..1100));
    check(&house, &range(0..90), 0, Some(MissReason::Evicted { tokens: 60 }));
    // Evicted tokens are cached again once they are recomputed.
    house.keep(&range(0..30));
    check(&house, &range(0..90), 30, Some(MissReason::Evicted { tokens: 30 }));

    let mut house = House::new(8, None, true);
    house.keep(&range(0..60));
    check(&house, &then(0..40, 900..910), 0, Some(MissReason::NoState { tokens: 40 }));
    check(&house, &range(0..61), 60, None);
}

#[test]
fn tenants_share_nothing() {
    let mut house = House::new(8, None, false);
    house.keep_as(&Prefix { salt: "a".into(), ..Prefix::default() }, &range(0..60));
    assert_eq!(house.find(&range(0..60)).len, 0);
    assert_eq!(house.prefixes.find(&house.cache, "a", &range(0..60), 60).len, 60);
}

#[test]
fn snapshots_are_taken_at_boundaries_and_where_prompts_diverged() {
    for (window, recurrent) in [(None, true), (Some(8), false), (Some(8), true)] {
        let mut house = House::new(64, window, recurrent);
        let tokens = range(0..700);
        let table = house.compute(&tokens);
        let prefix = Prefix { boundaries: vec![40, 650], pinned: 40, ..Prefix::default() };
        let slot = recurrent.then(|| house.prefixes.slot(&mut house.cache).unwrap());
        house.prefixes.insert_snapshot(&mut house.cache, &prefix, &tokens, &table, (650, slot));
        house.prefixes.insert(&mut house.cache, &prefix, &tokens, table);
        let check = |common: u32, expected: usize| {
            let hit = house.find(&then(0..common, 900..910));
            assert_eq!((hit.len, hit.seen), (expected, common as usize), "{window:?} {recurrent}");
        };
        check(700, 700);
        // Windows reach back a little, recurrent state doesn't.
        check(690, if recurrent { 650 } else { 690 });
        check(650, 650);
        check(40, 0);
    }
}

#[test]
fn a_snapshot_serves_many() {
    let mut house = House::new(64, None, true);
    house.keep(&range(0..100));
    let first = house.attach(&range(0..110));
    let second = house.attach(&range(0..120));
    assert_eq!((first.len(), second.len()), (100, 100));
    assert_ne!(first.slot(), second.slot());
    // Running sequences use all slots but that of the snapshot, which stays.
    let mut rest = Vec::new();
    while let Some(slot) = house.cache.take_slot() {
        rest.push(slot);
    }
    assert_eq!(house.attach(&range(0..120)).len(), 0);
    assert_eq!(house.find(&range(0..120)).len, 100);
}

#[test]
fn blocks_that_a_window_has_passed_are_freed() {
    let mut cache = Cache::new(&CacheConfig::new(4096, 1, 64, Some(64)), false);
    let blocks = cache.free().1;
    let mut table = Table::default();
    for end in (64..=2048).step_by(64) {
        cache.reserve(&mut table, end).unwrap();
        table.advance(end - table.len());
        assert!(blocks - cache.free().1 <= (64 + 256 + 64) / 32 + 2, "{end} tokens");
    }
    let mut house = House { cache, prefixes: Prefixes::default() };
    house.prefixes.insert(&mut house.cache, &Prefix::default(), &range(0..2048), table);
    for (common, expected) in [(2048, 2048), (1900, 1900), (1000, 0)] {
        assert_eq!(house.find(&then(0..common, 9000..9002)).len, expected);
    }
}

#[test]
fn the_least_useful_is_evicted_first() {
    let mut house = House::new(8, None, false);
    house.keep(&range(0..64));
    house.keep(&range(1000..1064));
    house.keep(&range(2000..2064));
    house.use_again(&range(0..64));
    // Static text stays longer than text used later, within a quarter of the blocks.
    house.keep_as(&Prefix { boundaries: vec![64], pinned: 64, ..Prefix::default() }, &range(3000..3064));
    let kept = |house: &House| [0, 1000, 2000, 3000].map(|start| house.find(&range(start..start + 64)).len);
    assert_eq!(kept(&house), [64; 4]);
    let table = house.compute(&range(5000..5064));
    assert_eq!(kept(&house), [64, 0, 64, 64], "the one that was not used for longest");
    house.cache.release(table);
    let table = house.compute(&range(5000..5190));
    assert_eq!(kept(&house), [0, 0, 0, 64], "static text last");
    house.cache.release(table);
    let table = house.compute(&range(5000..5256));
    assert_eq!((kept(&house), table.len()), ([0; 4], 256), "who runs has precedence");
}

/// Both hold the first token in a copy of their own, and the parent holds that of the second.
#[test]
fn a_sequence_gets_all_blocks_though_others_diverged_within_its_first() {
    let mut house = House::new(4, None, false);
    house.keep(&range(0..40));
    house.keep(&then(0..1, 500..530));
    assert_eq!(house.free(), 1);
    let all = then(0..40, 600..688);
    let table = house.compute(&all);
    assert_eq!((table.len(), house.free()), (128, 0));
    house.cache.release(table);
    assert_eq!(house.free(), 4);
}

#[test]
fn what_saves_little_time_for_its_bytes_is_evicted_first() {
    // Equally old: 33 tokens in two blocks, and 64 in two.
    let mut house = House::new(8, None, false);
    house.keep(&range(0..33));
    house.keep(&range(1000..1064));
    house.use_again(&range(0..33));
    let _running = house.compute(&range(5000..5160));
    assert_eq!([house.find(&range(0..33)).len, house.find(&range(1000..1064)).len], [0, 64]);
}

proptest! {
    /// For any mix of prompts, running and finished sequences, boundaries and evictions, lookups
    /// return what was computed, and nothing leaks.
    #[test]
    fn blocks_hold_what_was_written(
        operations in prop::collection::vec((0..7u8, 0..4u32, 1..90usize, 0..90usize), 1..80),
        recurrent in any::<bool>(),
        window in prop::sample::select(vec![None, Some(20)]),
    ) {
        let config = CacheConfig::new(14 * 32, 3, 64, window);
        let mut cache = Cache::new(&config, recurrent);
        let mut prefixes = Prefixes::default();
        let (full, windowed, slots) = (config.full.blocks, cache.free().1, config.slots);
        // The contents of each block, and the tokens that each slot has processed.
        let mut memory = vec![u32::MAX; full * 32];
        let mut ring = vec![u32::MAX; windowed.max(1) * 32];
        let mut seen = vec![Vec::<u32>::new(); slots];
        let mut running: Vec<(Table, Vec<u32>, Prefix)> = Vec::new();
        for (operation, kind, len, at) in operations {
            match operation {
                0..=2 => {
                    // Prompts of the same kind share a beginning; kinds 0 and 1 share the first 20
                    // tokens.
                    let tokens: Vec<u32> = (0..len as u32)
                        .map(|i| if i < 20 { 100 * (kind / 2) + i } else if i < 50 { 1000 * kind + i } else { 9000 + at as u32 + i })
                        .collect();
                    let hit = prefixes.find(&cache, "", &tokens, tokens.len() - 1);
                    let (table, copy) = prefixes.attach(&mut cache, &hit);
                    if let Some((from, to)) = copy {
                        seen[to.0 as usize] = seen[from.0 as usize].clone();
                    }
                    let prefix = Prefix { boundaries: vec![20.min(len), 50.min(len)], pinned: 20, ..Prefix::default() };
                    running.push((table, tokens, prefix));
                }
                3 | 4 if !running.is_empty() => {
                    let which = at % running.len();
                    let (table, tokens, prefix) = &mut running[which];
                    let end = (table.len() + len).min(tokens.len());
                    let copies = loop {
                        match cache.reserve(table, end) {
                            Ok(copies) => break Some(copies),
                            Err(kind) if prefixes.evict(&mut cache, kind) => {}
                            Err(_) => break None,
                        }
                    };
                    let Some(copies) = copies else { continue };
                    for (from, to) in copies.full {
                        memory.copy_within(from.0 as usize * 32..from.0 as usize * 32 + 32, to.0 as usize * 32);
                    }
                    for (from, to) in copies.windowed {
                        ring.copy_within(from.0 as usize * 32..from.0 as usize * 32 + 32, to.0 as usize * 32);
                    }
                    let start = table.len();
                    for i in start..end {
                        memory[table.full()[i / 32].0 as usize * 32 + i % 32] = tokens[i];
                        if window.is_some() {
                            ring[table.windowed()[i / 32].0 as usize * 32 + i % 32] = tokens[i];
                        }
                    }
                    let mut saved = Vec::new();
                    for &boundary in prefix.boundaries.iter().filter(|b| **b > start && **b <= end) {
                        let slot = recurrent.then(|| prefixes.slot(&mut cache));
                        if let Some(None) = slot { break }
                        if let Some(Some(slot)) = slot {
                            seen[slot.0 as usize] = tokens[..boundary].to_vec();
                        }
                        saved.push((boundary, slot.flatten()));
                    }
                    if recurrent {
                        seen[table.slot().0 as usize] = tokens[..end].to_vec();
                    }
                    table.advance(end - start);
                    for state in saved {
                        prefixes.insert_snapshot(&mut cache, prefix, tokens, table, state);
                    }
                }
                5 if !running.is_empty() => {
                    let (table, tokens, prefix) = running.swap_remove(at % running.len());
                    prefixes.insert(&mut cache, &prefix, &tokens, table);
                }
                6 if !running.is_empty() => {
                    let (table, tokens, prefix) = &running[at % running.len()];
                    prefixes.learn(&mut cache, prefix, tokens, table);
                }
                _ => {}
            }
            for (table, tokens, _) in &running {
                let len = table.len();
                for i in 0..len {
                    prop_assert_eq!(memory[table.full()[i / 32].0 as usize * 32 + i % 32], tokens[i]);
                }
                if let Some(window) = window {
                    for i in (len + 1).saturating_sub(window)..len {
                        prop_assert_eq!(ring[table.windowed()[i / 32].0 as usize * 32 + i % 32], tokens[i]);
                    }
                }
                if recurrent && len > 0 {
                    prop_assert_eq!(&seen[table.slot().0 as usize], &tokens[..len]);
                }
            }
        }
        for (table, _, _) in running {
            cache.release(table);
        }
        for kind in [OutOfMemory::Snapshots, OutOfMemory::Blocks] {
            while prefixes.evict(&mut cache, kind) {}
        }
        prop_assert_eq!(cache.free(), (full, windowed));
        prop_assert_eq!(std::iter::from_fn(|| cache.take_slot()).count(), if recurrent { slots } else { 0 });
    }
}
