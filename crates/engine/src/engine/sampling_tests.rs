use std::path::Path;
use std::time::Instant;

use alara_text::gguf::Gguf;

use super::*;

fn tokenizer() -> Tokenizer {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/alara-tiny.gguf");
    crate::architecture::tokenizer(&Gguf::open(&file).unwrap()).unwrap()
}

fn dry(texts: Vec<String>) -> Sampling {
    Sampling { dry_multiplier: 1.0, dry_sequence_breakers: texts, ..Sampling::default() }
}

#[test]
fn breakers_are_few_and_short() {
    let (tokenizer, breakers) = (tokenizer(), Breakers::default());
    let sampler = |texts| breakers.sampler(&dry(texts), &tokenizer, &Until::default());
    let many = (0..5000).map(|index| format!("breaker {index}")).collect();
    assert!(matches!(sampler(many), Err(Error::InvalidRequest { .. })));
    // Only the beginning of a long breaker counts, so that it takes no longer.
    let begun = Instant::now();
    sampler(vec!["ab \n".repeat(75_000)]).unwrap();
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    let known = breakers.known.lock().unwrap();
    assert_eq!(known.iter().map(|(text, _)| text.len()).collect::<Vec<_>>(), [LONGEST_TEXT]);
}

#[test]
fn breakers_are_remembered_by_their_texts() {
    let (tokenizer, breakers) = (tokenizer(), Breakers::default());
    let ask = |text: &str| breakers.sequences(text, &tokenizer, &Until::default()).unwrap();
    let first = ask("\n");
    assert!(first.len() > 1 && Arc::ptr_eq(&first, &ask("\n")));
    for index in 0..2 * REMEMBERED {
        ask(&format!("{index}"));
    }
    assert_eq!(breakers.known.lock().unwrap().len(), REMEMBERED);
}

#[test]
fn samplers_end_with_their_request() {
    let (tokenizer, breakers) = (tokenizer(), Breakers::default());
    let gone = Until { cancelled: Some(Arc::new(true.into())), ..Until::default() };
    let late = Until { deadline: Some(Instant::now()), ..Until::default() };
    let biased =
        Sampling { logit_bias: vec![(Biased::Text("a b".into()), 1.0); 1000], ..Sampling::default() };
    for until in [gone, late] {
        for sampling in [dry(vec!["x".into()]), biased.clone()] {
            let error = breakers.sampler(&sampling, &tokenizer, &until).unwrap_err();
            assert!(error.is_over(), "{error}");
        }
    }
}

#[test]
fn biases_of_one_token_are_one() {
    let tokenizer = tokenizer();
    let biases = |given: &[(u32, f32)]| {
        let given: Vec<_> = given.iter().map(|&(token, bias)| (Biased::Token(token), bias)).collect();
        biases(&given, &tokenizer, &Until::default()).unwrap()
    };
    let expected = vec![(Biased::Token(3), 1.5), (Biased::Token(4), Sampling::BANNED)];
    assert_eq!(biases(&[(3, 1.0), (4, 5.0), (3, 0.5), (4, -100.0), (4, 7.0)]), expected);
    let [(_, bias)] = biases(&[(3, -60.0), (3, -60.0)])[..] else { panic!() };
    assert!(bias > Sampling::BANNED);
}
