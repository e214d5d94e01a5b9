//! Suggestions for names that do not exist.

/// `, did you mean "NAME"?` for the known name that is most like `name`; empty if none is like it.
pub(crate) fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(name, known).map(|near| format!(", did you mean \"{near}\"?")).unwrap_or_default()
}
/// The known name that is most like `name`, if any is like it at all.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = name.chars().count().div_ceil(3);
    known
        // Two letters in the wrong order are one slip.
        .map(|other| (strsim::osa_distance(name, other), other))
        .filter(|(far, other)| *far <= limit && *far < name.chars().count().max(other.chars().count()))
        .min()
        .map(|(_, other)| other)
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
        check("shlel", Some("shell"));
        check("banana", None);
        check("", None);
        assert_eq!(nearest("b", ["a"].into_iter()), None);
    }
}
