//! Restores user-defined pieces that a converter labeled as another kind.
//!
//! SentencePiece matches user-defined pieces as a whole before merging.
//! Ollama's files of Gemma 3 label them as ordinary or control pieces.
//! They can be recognized: trained pieces have individual scores, falling from one to the next,
//! while all user-defined ones share one score.
//! Also, they are runs of whitespace, or written as tags.

use super::spm::SPACE;
use super::vocabulary::TokenKind;
use crate::gguf::Strings;

/// HTML elements that vocabularies contain as tags, `<b>` and `</b>`.
const HTML: [&str; 28] = [
    "a",
    "b",
    "blockquote",
    "br",
    "caption",
    "code",
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "i",
    "li",
    "ol",
    "p",
    "s",
    "strong",
    "sub",
    "sup",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "tr",
];

/// Restores the kind of user-defined pieces.
/// `named` are ids with a role, such as BOS.
pub(super) fn user_defined(texts: &Strings, scores: &[f32], kinds: &mut [TokenKind], named: &[u32]) {
    // SentencePiece gives them the score 0.
    let mut shared = vec![0.0];
    let typed = scores.iter().zip(&*kinds).filter(|&(_, &kind)| kind == TokenKind::UserDefined);
    shared.extend(typed.map(|(&score, _)| score));
    shared.sort_by(f32::total_cmp);
    shared.dedup();
    let shares = |score: &f32| shared.binary_search_by(|other| other.total_cmp(score)).is_ok();

    // Trained vocabularies have runs of spaces too; only one of them can have the score 0.
    let runs =
        texts.iter().zip(scores).filter(|&(text, score)| text.len() > 3 && run(text, SPACE) && shares(score));
    let spaces = runs.count() > 1;

    for (id, ((text, score), kind)) in (0u32..).zip(texts.iter().zip(scores).zip(kinds)) {
        let lines = run(text, '\n') || run(text, '\t');
        let was = match *kind {
            TokenKind::Normal if shares(score) => lines || tag(text).is_some() || spaces && run(text, SPACE),
            TokenKind::Control if !named.contains(&id) => {
                lines || run(text, SPACE) || tag(text).is_some_and(|name| HTML.contains(&name))
            }
            _ => false,
        };
        if was {
            *kind = TokenKind::UserDefined;
        }
    }
}

fn run(text: &str, of: char) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter == of)
}

/// The name in `<name>`, `</name>` or `[name]`.
fn tag(text: &str) -> Option<&str> {
    let angular = || text.strip_prefix('<')?.strip_suffix('>');
    let square = || text.strip_prefix('[')?.strip_suffix(']');
    let name = angular().map(|name| name.strip_prefix('/').unwrap_or(name)).or_else(square)?;
    let plain =
        |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '=' | '@' | ' ' | '|');
    (!name.is_empty() && name.chars().all(plain)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_converted_gemma() {
        use TokenKind::*;
        #[track_caller]
        fn check(pieces: &[(&str, f32, TokenKind)], expected: &[TokenKind]) {
            let mut kinds: Vec<TokenKind> = pieces.iter().map(|piece| piece.2).collect();
            let scores: Vec<f32> = pieces.iter().map(|piece| piece.1).collect();
            let texts = pieces.iter().map(|piece| piece.0).collect();
            user_defined(&texts, &scores, &mut kinds, &[0]);
            assert_eq!(kinds, expected);
        }
        check(
            &[
                ("<s>", 0.0, Control),
                ("<table>", 0.0, Normal),
                ("</s>", 0.0, Control),
                ("<start_of_turn>", 0.0, Control),
                ("\n\n", 0.0, Control),
                ("▁▁", 0.0, Normal),
                ("▁▁▁", 0.0, Normal),
                ("\t", 0.0, Normal),
                ("in", 0.0, Normal),
                ("<b>", -7.0, Normal),
                ("<0x41>", 0.0, Byte),
            ],
            &[
                Control,
                UserDefined,
                UserDefined,
                Control,
                UserDefined,
                UserDefined,
                UserDefined,
                UserDefined,
                Normal,
                Normal,
                Byte,
            ],
        );
        // The first trained piece also has the score 0.
        check(&[("<s>", 0.0, Control), ("▁▁", 0.0, Normal)], &[Control, Normal]);
        // Some converters give added pieces a far lower score.
        check(
            &[("<s>", 0.0, Control), ("<mask>", -1000.0, UserDefined), ("[toxicity=0]", -1000.0, Normal)],
            &[Control, UserDefined, UserDefined],
        );
    }
}
