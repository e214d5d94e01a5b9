//! What sequences share, what they wait for, and what guesses leave behind, case by case; any
//! mixture of it is in `model_tests`.

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
        let mut runs: Vec<Run> =
            (1..4).map(|kind| Run::new([text(0, 200), text(kind, 10)].concat(), prefix.clone())).collect();
        let mut refs: Vec<&mut Run> = runs.iter_mut().collect();
        let computed = refs.iter().map(|run| run.pending()).sum::<usize>() - 400;
        let sum = rows(&mut pool, &mut refs);
        // Found rows are no longer pending either, so what was computed is what is left.
        let cached: usize = refs.iter().map(|run| run.found.as_ref().unwrap().cached).sum();
        assert_eq!((cached, sum - cached), (400, computed), "{case}");
    }
}

#[test]
fn who_waits_goes_on_alone_if_the_other_leaves() {
    for case in SORTS {
        let mut pool = pool(&fixture(case), 1024, BUDGET);
        let run = |kind| Run::new([text(0, 200), text(kind, 10)].concat(), Prefix::default());
        let (mut first, mut second) = (run(1), run(2));
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
fn the_same_skills_and_a_new_question_hit_wherever_prompts_part() {
    for case in SORTS {
        let mut pool = pool(&fixture(case), 2048, BUDGET);
        let mut ask = |parts: &[Vec<u32>], boundaries: &[usize]| {
            let prefix = Prefix { boundaries: boundaries.to_vec(), ..Prefix::default() };
            let mut run = Run::new(parts.concat(), prefix);
            rows(&mut pool, &mut [&mut run]);
            pool.finish(&mut run);
            run.found.unwrap().cached
        };
        // A declared boundary.
        assert_eq!(ask(&[text(0, 100), text(1, 40)], &[100]), 0, "{case}");
        assert_eq!(ask(&[text(0, 100), text(2, 40)], &[100]), 100, "{case}");
        // None was declared: the second miss keeps the state, and the third hits.
        let long = 300;
        assert_eq!(ask(&[text(5, 100), text(6, long)], &[]), 0, "{case}");
        let second = ask(&[text(5, 100), text(7, long)], &[]);
        assert!(second == 0 || case == "qwen3-exact" && second == 100, "{case}: {second}");
        assert_eq!(ask(&[text(5, 100), text(8, long)], &[]), 100, "{case}");
    }
}

#[test]
fn long_text_is_shared_at_once_though_nobody_said_where_prompts_part() {
    for case in SORTS {
        let mut pool = pool(&fixture(case), 4096, BUDGET);
        let mut ask = |tail| {
            let mut run = Run::new([text(0, 1300), text(tail, 400)].concat(), Prefix::default());
            rows(&mut pool, &mut [&mut run]);
            pool.finish(&mut run);
            run.found.unwrap().cached
        };
        assert_eq!(ask(1), 0, "{case}");
        let expected = if case == "qwen3-exact" { 1300 } else { 2 * SNAPSHOT_EVERY };
        assert_eq!(ask(2), expected, "{case}");
        assert_eq!(ask(3), 1300, "{case}: where prompts were seen to part");
    }
}

/// What keeping state costs a prompt that finds nothing: no step more, and a copy of the recurrent
/// state for each boundary.
#[test]
fn boundaries_cost_no_step() {
    for case in SORTS {
        let steps = |boundaries: &[usize]| {
            let mut pool = pool(&fixture(case), 1024, BUDGET);
            let mut run =
                Run::new(text(0, 400), Prefix { boundaries: boundaries.to_vec(), ..Prefix::default() });
            let mut steps = 0;
            while run.pending() > 0 {
                pool.step(&mut [&mut run], BUDGET).unwrap();
                steps += 1;
            }
            steps
        };
        assert_eq!(steps(&[50, 75, 144, 200, 310]), steps(&[]), "{case}");
    }
}

#[test]
fn who_finds_no_room_waits_and_loses_nothing() {
    for case in SORTS {
        let gguf = fixture(case);
        let mut oracle = Oracle::new(&gguf);
        let mut pool = pool(&gguf, 320, BUDGET);
        let mut runs: Vec<Run> = (0..4).map(|kind| Run::new(text(kind, 150), Prefix::default())).collect();
        for _ in 0..400 {
            let mut refs: Vec<&mut Run> = runs.iter_mut().collect();
            let stepped = pool.step(&mut refs, BUDGET).unwrap();
            assert_eq!(stepped.too_long, None, "{case}");
            for (at, logits) in pool.logits_of_each(&stepped) {
                let run = &mut runs[at];
                assert!(oracle.logits(&run.tokens) == logits, "{case}");
                run.tokens.push(best(&logits));
                run.finished = run.tokens.len() == 170;
            }
            for run in runs.iter_mut().filter(|run| run.finished) {
                pool.finish(run);
            }
            if runs.iter().all(|run| run.finished) {
                break;
            }
        }
        assert!(runs.iter().all(|run| run.tokens.len() == 170), "{case}");
        let mut alone = Run::new(text(0, 330), Prefix::default());
        let mut too_long = None;
        while too_long.is_none() {
            too_long = pool.step(&mut [&mut alone], BUDGET).unwrap().too_long;
        }
        assert_eq!(too_long, Some(0), "{case}");
    }
}

/// Drafts of every length, of which any number of tokens comes, across the ends of blocks: nothing
/// of a guess that didn't come is left behind, neither in what goes on from it nor in what others
/// find of it.
#[test]
fn what_was_guessed_wrongly_leaves_nothing_behind() {
    for case in SORTS {
        let gguf = fixture(case);
        let mut oracle = Oracle::new(&gguf);
        let mut pool = pool(&gguf, 1024, BUDGET);
        let mut run = Run::new(text(0, 20), Prefix::default());
        for turn in 0..45 {
            let (length, right) = (turn % 6, turn / 6 % 7);
            if turn > 0 {
                let mut all = run.tokens.clone();
                for at in 0..length {
                    let next = best(oracle.logits(&all));
                    all.push(if at < right { next } else { next ^ 1 });
                }
                run.draft.tokens = all.split_off(run.tokens.len());
                run.draft.grounds = vec![SURE; length];
            }
            trust(&mut pool);
            let mut refs = [&mut run];
            let stepped = pool.step(&mut refs, BUDGET).unwrap();
            let logits = pool.logits_of_each(&stepped).remove(0).1;
            follow(&mut oracle, &mut run, &logits, usize::MAX, &format!("{case} turn {turn}"));
            if turn % 9 == 8 {
                // Somebody goes on from here, and leaves.
                let mut other = Run::new([run.tokens.as_slice(), &[7, 8]].concat(), Prefix::default());
                for _ in 0..4 {
                    other.draft = draft(&mut Random(turn as u64), &mut oracle, &other.tokens);
                    trust(&mut pool);
                    let stepped = pool.step(&mut [&mut run, &mut other], BUDGET).unwrap();
                    for (at, logits) in pool.logits_of_each(&stepped) {
                        let one = [&mut run, &mut other].into_iter().nth(at).unwrap();
                        follow(&mut oracle, one, &logits, usize::MAX, case);
                    }
                }
                pool.finish(&mut other);
            }
        }
        let drafts = run.drafts();
        assert!(drafts.accepted > 10 && drafts.drafted > drafts.accepted + 10, "{case}: {drafts:?}");
        pool.finish(&mut run);
        let mut again = Run::new(run.tokens.clone(), Prefix::default());
        rows(&mut pool, &mut [&mut again]);
        let Found { cached, .. } = again.found.unwrap();
        assert!(cached + 8 >= run.tokens.len(), "{case}: {cached} of {} are kept", run.tokens.len());
    }
}
