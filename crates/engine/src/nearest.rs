//! Suggestions for names that do not exist.

/// `, did you mean "NAME"?` for the known name that is most like `name`; empty if none is like it.
pub(crate) fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(name, known).map(|near| format!(", did you mean \"{near}\"?")).unwrap_or_default()
}
/// The known name that is most like `name`, if any is like it at all.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = name.chars().count().div_ceil(3);
    known
        .map(|other| (distance(name, other), other))
        .filter(|(far, other)| *far <= limit && *far < name.chars().count().max(other.chars().count()))
        .min()
        .map(|(_, other)| other)
}

/// Levenshtein's distance: inserted, deleted and changed characters.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, from) in left.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, to) in right.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_nearest() {
        let check = |name, expected| {
            assert_eq!(nearest(name, ["worker", "writer", "shell"].into_iter()), expected, "{name}");
        };
        check("worker", Some("worker"));
        check("wroker", Some("worker"));
        check("shel", Some("shell"));
        check("banana", None);
        check("", None);
        assert_eq!(nearest("b", ["a"].into_iter()), None);
    }
}
