//! Regular expressions of strings in their JSON form: between quotes, with escapes.
//!
//! Characters that need no escape have none; others have their short escape, and control characters
//! without one do not occur.
//! So each character has a unique form, and statements about strings apply to their JSON form.

use std::fmt::Write;

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind};

/// Characters that are escaped, each with the character after the backslash.
const ESCAPES: [(char, char); 7] =
    [('\u{8}', 'b'), ('\t', 't'), ('\n', 'n'), ('\u{c}', 'f'), ('\r', 'r'), ('"', '"'), ('\\', '\\')];

/// Any character of a string.
pub(super) const ANY: &str = r#"(?:[^\x{0}-\x{1f}\x{22}\x{5c}\x{7f}]|\x{5c}[btnfr\x{22}\x{5c}])"#;

/// An expression for the JSON forms of the strings that `regex` matches in full, without the
/// quotes.
///
/// # Errors
/// The construct that can't be converted.
pub(super) fn quoted(regex: &str) -> Result<String, String> {
    let parsed = regex_syntax::parse(regex).map_err(|error| error.to_string())?;
    let mut out = String::new();
    write(&parsed, &mut out)?;
    Ok(out)
}

/// An expression for the JSON form of one string, without the quotes.
pub(super) fn literal(text: &str) -> String {
    text.chars()
        .map(|character| class(&ClassUnicode::new([ClassUnicodeRange::new(character, character)])))
        .collect()
}

fn write(node: &Hir, out: &mut String) -> Result<(), String> {
    match node.kind() {
        HirKind::Empty => {}
        HirKind::Literal(bytes) => {
            let text = std::str::from_utf8(&bytes.0).map_err(|error| error.to_string())?;
            *out += &literal(text);
        }
        HirKind::Class(Class::Unicode(set)) => *out += &class(set),
        HirKind::Class(Class::Bytes(set)) => {
            let ranges = set.ranges().iter();
            let ranges = ranges.map(|range| ClassUnicodeRange::new(range.start().into(), range.end().into()));
            *out += &class(&ClassUnicode::new(ranges));
        }
        HirKind::Look(_) => return Err("an anchor stands inside of the expression".into()),
        HirKind::Repetition(repetition) => {
            *out += "(?:";
            write(&repetition.sub, out)?;
            let most = repetition.max.map_or(String::new(), |most| most.to_string());
            let _ = write!(out, "){{{},{most}}}", repetition.min);
        }
        HirKind::Capture(group) => write(&group.sub, out)?,
        HirKind::Concat(nodes) => nodes.iter().try_for_each(|node| write(node, out))?,
        HirKind::Alternation(options) => {
            for (index, option) in options.iter().enumerate() {
                *out += if index == 0 { "(?:" } else { "|" };
                write(option, out)?;
            }
            *out += ")";
        }
    }
    Ok(())
}

fn class(set: &ClassUnicode) -> String {
    let escapes: String = ESCAPES
        .iter()
        .filter(|(character, _)| {
            set.ranges().iter().any(|range| (range.start()..=range.end()).contains(character))
        })
        .map(|&(_, escape)| hexadecimal(escape))
        .collect();
    let plain = [(' ', '!'), ('#', '['), (']', '~'), ('\u{80}', char::MAX)];
    let mut rest = ClassUnicode::new(plain.map(|(first, last)| ClassUnicodeRange::new(first, last)));
    rest.intersect(set);
    let rest: String = rest
        .ranges()
        .iter()
        .map(|range| {
            let (first, last) = (hexadecimal(range.start()), hexadecimal(range.end()));
            if first == last { first } else { format!("{first}-{last}") }
        })
        .collect();
    match (rest.is_empty(), escapes.is_empty()) {
        // Matches no character.
        (true, true) => "[a&&b]".into(),
        (false, true) => format!("[{rest}]"),
        (true, false) => format!("\\x{{5c}}[{escapes}]"),
        (false, false) => format!("(?:[{rest}]|\\x{{5c}}[{escapes}])"),
    }
}

pub(super) fn hexadecimal(character: char) -> String {
    if character.is_ascii_alphanumeric() {
        character.into()
    } else {
        format!("\\x{{{:x}}}", character as u32)
    }
}
