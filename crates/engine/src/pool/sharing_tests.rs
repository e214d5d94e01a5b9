//! Tests what sequences share, what they wait for, and that drafts leave nothing behind, case by
//! case;
//! `model_tests` has arbitrary mixtures.

use super::model_tests::{
    BUDGET, Oracle, Random, SORTS, SURE, best, draft, fixture, follow, pool, rows, text, trust,
};
use super::*;
use crate::cache::SNAPSHOT_EVERY;

#[test]
fn requests_that_need_one_prefix_compute_it_once() {
    for case in SORTS {
        let mut pool = pool(&fixture(case), 1024, BUDGET);
        let prefix = Prefix { boundaries: vec![200], pinned: 200, ..Prefix::default() };
        let mut sequences: Vec<SequenceData> = (1..4)
            .map(|kind| SequenceData::new([text(0, 200), text(kind, 10)].concat(), prefix.clone()))
            .collect();
        let mut refs: Vec<&mut SequenceData> = sequences.iter_mut().collect();
        let computed = refs.iter().map(|data| data.pending()).sum::<usize>() - 400;
        let sum = rows(&mut pool, &mut refs);
        // Rows found in the cache aren't pending either; the rest was computed.
        let cached: usize = refs.iter().map(|data| data.found.as_ref().unwrap().cached).sum();
        assert_eq!((cached, sum - cached), (400, computed), "{case}");
    }
}

#[test]
fn a_waiting_sequence_goes_on_alone_if_the_other_is_cancelled() {
    for case in SORTS {
        let mut pool = pool(&fixture(case), 1024, BUDGET);
        let data = |kind| SequenceData::new([text(0, 200), text(kind, 10)].concat(), Prefix::default());
        let (mut first, mut second) = (data(1), data(2));
        for _ in 0..2 {
            pool.step(&mut [&mut first, &mut second], BUDGET).unwrap();
        }
        assert_eq!((first.pending(), second.pending()), (210 - 2 * BUDGET, 210), "{case}");
        pool.finish(&mut first);
        rows(&mut pool, &mut [&mut second]);
        assert_eq!(second.found.unwrap().cached, 2 * BUDGET, "{case}: it has what the first computed");
    }
}

#[test]
fn the_same_skills_and_a_new_question_hit_wherever_prompts_diverge() {
    for case in SORTS {
        let mut pool = pool(&fixture(case), 2048, BUDGET);
        let mut ask = |inputs: &[Vec<u32>], boundaries: &[usize]| {
            let prefix = Prefix { boundaries: boundaries.to_vec(), ..Prefix::default() };
            let mut data = SequenceData::new(inputs.concat(), prefix);
            rows(&mut pool, &mut [&mut data]);
            pool.finish(&mut data);
            data.found.unwrap().cached
        };
        // A declared boundary.
        assert_eq!(ask(&[text(0, 100), text(1, 40)], &[100]), 0, "{case}");
        assert_eq!(ask(&[text(0, 100), text(2, 40)], &[100]), 100, "{case}");
        // No boundary was declared: the second miss takes a snapshot, and the third hits.
        let long = 300;
        assert_eq!(ask(&[text(5, 100), text(6, long)], &[]), 0, "{case}");
        let second = ask(&[text(5, 100), text(7, long)], &[]);
        assert!(second == 0 || case == "qwen3-exact" && second == 100, "{case}: {second}");
        assert_eq!(ask(&[text(5, 100), text(8, long)], &[]), 100, "{case}");
    }
}

#[test]
fn long_text_is_shared_at_once_without_boundaries() {
    for case in SORTS {
        let mut pool = pool(&fixture(case), 4096, BUDGET);
        let mut ask = |tail| {
            let mut data = SequenceData::new([text(0, 1300), text(tail, 400)].concat(), Prefix::default());
            rows(&mut pool, &mut [&mut data]);
            pool.finish(&mut data);
            data.found.unwrap().cached
        };
        assert_eq!(ask(1), 0, "{case}");
        let expected = if case == "qwen3-exact" { 1300 } else { 2 * SNAPSHOT_EVERY };
        assert_eq!(ask(2), expected, "{case}");
        assert_eq!(ask(3), 1300, "{case}: where prompts were seen to part");
    }
}

/// The cost of keeping state for a prompt without a hit: no extra step, and one copy of the
/// recurrent state per boundary.
#[test]
fn boundaries_cost_no_step() {
    for case in SORTS {
        let steps = |boundaries: &[usize]| {
            let mut pool = pool(&fixture(case), 1024, BUDGET);
            let mut data = SequenceData::new(
                text(0, 400),
                Prefix { boundaries: boundaries.to_vec(), ..Prefix::default() },
            );
            let mut steps = 0;
            while data.pending() > 0 {
                pool.step(&mut [&mut data], BUDGET).unwrap();
                steps += 1;
            }
            steps
        };
        assert_eq!(steps(&[50, 75, 144, 200, 310]), steps(&[]), "{case}");
    }
}

#[test]
fn a_preempted_sequence_waits_and_loses_nothing() {
    for case in SORTS {
        let gguf = fixture(case);
        let mut oracle = Oracle::new(&gguf);
        let mut pool = pool(&gguf, 320, BUDGET);
        let mut sequences: Vec<SequenceData> =
            (0..4).map(|kind| SequenceData::new(text(kind, 150), Prefix::default())).collect();
        for _ in 0..400 {
            let mut refs: Vec<&mut SequenceData> = sequences.iter_mut().collect();
            let stepped = pool.step(&mut refs, BUDGET).unwrap();
            assert_eq!(stepped.too_long, None, "{case}");
            for (at, logits) in pool.logits_of_each(&stepped) {
                let data = &mut sequences[at];
                assert!(oracle.logits(&data.tokens) == logits, "{case}");
                data.tokens.push(best(&logits));
                data.finished = data.tokens.len() == 170;
            }
            for data in sequences.iter_mut().filter(|data| data.finished) {
                pool.finish(data);
            }
            if sequences.iter().all(|data| data.finished) {
                break;
            }
        }
        assert!(sequences.iter().all(|data| data.tokens.len() == 170), "{case}");
        let mut alone = SequenceData::new(text(0, 330), Prefix::default());
        let mut too_long = None;
        while too_long.is_none() {
            too_long = pool.step(&mut [&mut alone], BUDGET).unwrap().too_long;
        }
        assert_eq!(too_long, Some(0), "{case}");
    }
}

/// The cached prompt holds all blocks, so the copy of its last one has no room.
#[test]
fn the_same_prompt_is_read_twice_where_it_fills_the_cache() {
    for case in SORTS {
        let gguf = fixture(case);
        let mut pool = pool(&gguf, 320, BUDGET);
        for tokens in [text(0, 310), text(0, 310), [text(0, 290), text(1, 20)].concat()] {
            let mut data = SequenceData::new(tokens, Prefix::default());
            while data.pending() > 0 {
                let stepped = pool.step(&mut [&mut data], BUDGET).unwrap();
                assert_eq!(stepped.too_long, None, "{case}");
            }
            pool.finish(&mut data);
        }
    }
}

/// Drafts of every length, with any number of tokens accepted, across block boundaries.
/// A rejected token leaves nothing behind, neither in the continuation nor in what other sequences
/// find in the cache.
#[test]
fn rejected_tokens_leave_nothing_behind() {
    for case in SORTS {
        let gguf = fixture(case);
        let mut oracle = Oracle::new(&gguf);
        let mut pool = pool(&gguf, 1024, BUDGET);
        let mut data = SequenceData::new(text(0, 20), Prefix::default());
        for turn in 0..45 {
            let (length, right) = (turn % 6, turn / 6 % 7);
            if turn > 0 {
                let mut all = data.tokens.clone();
                for at in 0..length {
                    let next = best(oracle.logits(&all));
                    all.push(if at < right { next } else { next ^ 1 });
                }
                data.draft.tokens = all.split_off(data.tokens.len());
                data.draft.features = vec![SURE; length];
            }
            trust(&mut pool);
            let mut refs = [&mut data];
            let stepped = pool.step(&mut refs, BUDGET).unwrap();
            let logits = pool.logits_of_each(&stepped).remove(0).1;
            follow(&mut oracle, &mut data, &logits, usize::MAX, &format!("{case} turn {turn}"));
            if turn % 9 == 8 {
                // Another sequence continues from here, and disconnects.
                let mut other =
                    SequenceData::new([data.tokens.as_slice(), &[7, 8]].concat(), Prefix::default());
                for _ in 0..4 {
                    other.draft = draft(&mut Random(turn as u64), &mut oracle, &other.tokens);
                    trust(&mut pool);
                    let stepped = pool.step(&mut [&mut data, &mut other], BUDGET).unwrap();
                    for (at, logits) in pool.logits_of_each(&stepped) {
                        let one = [&mut data, &mut other].into_iter().nth(at).unwrap();
                        follow(&mut oracle, one, &logits, usize::MAX, case);
                    }
                }
                pool.finish(&mut other);
            }
        }
        let drafts = data.drafts();
        assert!(drafts.accepted > 10 && drafts.drafted > drafts.accepted + 10, "{case}: {drafts:?}");
        pool.finish(&mut data);
        let mut again = SequenceData::new(data.tokens.clone(), Prefix::default());
        rows(&mut pool, &mut [&mut again]);
        let FoundPrefix { cached, .. } = again.found.unwrap();
        assert!(cached + 8 >= data.tokens.len(), "{case}: {cached} of {} are kept", data.tokens.len());
    }
}
