//! Suggestions for unknown names.

/// `, did you mean "NAME"?` for the known name most similar to `name`; empty if none is similar.
pub(crate) fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(name, known).map(|near| format!(", did you mean \"{near}\"?")).unwrap_or_default()
}
/// The known name most similar to `name`, if any is similar.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = name.chars().count().div_ceil(3);
    known
        // Two swapped letters count as one typo.
        .map(|other| (strsim::osa_distance(name, other), other))
        .filter(|(far, other)| *far <= limit && *far < name.chars().count().max(other.chars().count()))
        .min()
        .map(|(_, other)| other)
}

/// Whether a name is `word` with a typo, in the plural or in another naming style.
/// Stricter than [`nearest`], so that other words don't match.
pub fn resembles(name: &str, word: &str) -> bool {
    let plain = |text: &str| {
        let letters = text.chars().filter(|c| !matches!(c, '_' | '-' | '.' | ' '));
        letters.collect::<String>().to_lowercase().trim_end_matches('s').to_owned()
    };
    let (name, word) = (plain(name), plain(word));
    strsim::osa_distance(&name, &word) <= word.chars().count() / 5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_and_plurals_resemble_a_word_and_other_words_do_not() {
        for name in ["permission", "Permissions", "premissions", "permisions", ".permissions", "per_missions"]
        {
            assert!(resembles(name, "permissions"), "{name}");
        }
        for (name, word) in [("gates", "gate"), ("Hook", "hooks"), ("limit", "limits"), ("pahses", "phases")]
        {
            assert!(resembles(name, word), "{name}");
        }
        let others =
            [("commissions", "permissions"), ("date", "gate"), ("lists", "limits"), ("books", "hooks")];
        for (name, word) in others {
            assert!(!resembles(name, word), "{name}");
        }
    }

    #[test]
    fn finds_the_nearest() {
        let check = |name, expected| {
            assert_eq!(nearest(name, ["worker", "writer", "shell"].into_iter()), expected, "{name}");
        };
        check("worker", Some("worker"));
        check("wroker", Some("worker"));
        check("shel", Some("shell"));
        check("shlel", Some("shell"));
        check("banana", None);
        check("", None);
        assert_eq!(nearest("b", ["a"].into_iter()), None);
    }
}
