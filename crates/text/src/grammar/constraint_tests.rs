//! A failed constraint permits nothing.

use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;

use super::*;
use crate::grammar::tests::{parser, vocabulary};
use crate::request::Sampling;

fn constraint(lark: &str) -> Constraint {
    Constraint::new(parser(lark), true, Duration::ZERO)
}

/// A constraint with changed limits of llguidance, to reach them easily.
fn limited(lark: &str, limit: impl FnOnce(&mut llguidance::api::ParserLimits)) -> Constraint {
    let mut factory = ParserFactory::new_simple(&vocabulary()).unwrap();
    factory.quiet();
    limit(factory.limits_mut());
    let mut parser = factory.create_parser(TopLevelGrammar::from_lark(lark.into())).unwrap();
    parser.start_without_prompt();
    Constraint::new(parser, true, Duration::ZERO)
}

/// Checks that every call fails.
fn assert_dead(constraint: &mut Constraint, reason: &str) {
    let mut sampler = Sampler::new(&Sampling { temperature: 1.0, ..Sampling::default() });
    let mut errors = vec![
        constraint.sample(&mut sampler, &mut [0.0; 300], &[]).map(|_| ()),
        constraint.mask(&mut [0.0; 300]),
        constraint.allows(97).map(|_| ()),
        constraint.allows_all(&[97, 98]).map(|_| ()),
        constraint.forced().map(|_| ()),
        constraint.accept(97),
    ];
    errors.extend(vocabulary().tok_trie().eos_tokens().iter().map(|&end| constraint.accept(end)));
    for error in errors {
        let message = error.unwrap_err().to_string();
        assert!(message.contains(reason) && !message.contains('\n'), "{message}");
    }
    assert!(!constraint.finished());
}

#[test]
fn a_panic_is_an_error_and_final() {
    let start = parser("start: /[a-z]+/");
    let mut broken = Constraint::new(start.deep_clone(), true, Duration::ZERO);
    broken.break_down();
    assert_dead(&mut broken, "synthetic error");
    // Another turn with this grammar isn't affected.
    let mut other = Constraint::new(start.deep_clone(), true, Duration::ZERO);
    assert!(other.allows(97).unwrap());
}

#[test]
fn limits_end_a_turn_with_an_error() {
    let check = |mut constraint: Constraint, reason: &str| {
        let mut step = || constraint.mask(&mut [0.0; 300]).and_then(|()| constraint.accept(97));
        assert!((0..100).any(|_| step().is_err()), "{reason} did not happen");
        assert_dead(&mut constraint, reason);
    };
    let counter = "start: /([ab]{1,90}c){1,90}/";
    check(limited(counter, |limits| limits.step_lexer_fuel = 1), "too many expressions");
    check(limited(counter, |limits| limits.max_lexer_states = 30), "too many states");
    let many = "start: x+ \"!\"\nx: \"a\" | \"b\" | \"c\"";
    check(limited(many, |limits| limits.step_max_items = 2), "Too many items");
}

#[test]
fn an_accepted_token_that_is_forbidden_is_final() {
    let mut turn = constraint("start: \"abc\"");
    assert!(turn.accept(u32::from(b'x')).is_err());
    assert_dead(&mut turn, "");
    let mut beyond = constraint("start: /[a-z]*/");
    assert!(!beyond.allows(9999).unwrap(), "beyond the vocabulary");
    assert!(beyond.accept(9999).is_err());
    assert_dead(&mut beyond, "");
}

#[test]
fn a_long_turn_does_not_run_dry() {
    // Each letter leads to a new lexer state, which costs fuel.
    let long = "start: /([a-z]{1,30000}[0-9]){2}/";
    let spend = |constraint: &mut Constraint, ask: &dyn Fn(&mut Constraint) -> Result<bool, GrammarError>| {
        for _ in 0..20_000 {
            assert!(ask(constraint)?);
            constraint.accept(97)?;
        }
        Ok::<_, GrammarError>(constraint.usage().masks)
    };
    let limits = |limits: &mut llguidance::api::ParserLimits| {
        limits.initial_lexer_fuel = 120_000;
        limits.precompute_large_lexemes = true;
    };
    let masks = spend(&mut limited(long, limits), &|constraint| constraint.allows(97)).unwrap();
    assert!(masks > 0, "no new fuel was needed: the test shows nothing");
    // Without refills it runs out of fuel.
    let dry = spend(&mut limited(long, limits), &|constraint| constraint.allows_all(&[97]));
    assert!(dry.is_err(), "{dry:?}");
}
