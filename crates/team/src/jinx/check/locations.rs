//! Locates a text in a file when only its step is known.

use super::names::words;
use crate::types::Location;

/// The location of `name` in a line of a step's text, otherwise of the line, otherwise of the step.
/// `text` is the parsed text: without the indentation that it has in the file.
pub(crate) fn of_name(file: &str, step: Location, text: &str, name: &str) -> Location {
    let Some(start) = offset(file, step) else { return step };
    let line = text.lines().find(|line| words(line, name).next().is_some()).map(str::trim);
    let Some((line, at)) = line.and_then(|line| Some((line, start + file[start..].find(line)?))) else {
        return step;
    };
    let within = words(line, name).next().unwrap_or_default();
    location(file, at + within)
}

/// The location of a piece of a step's text, otherwise of the step.
pub(crate) fn of_piece(file: &str, step: Location, piece: &str) -> Location {
    let piece = piece.lines().next().unwrap_or_default().trim();
    let Some(start) = offset(file, step).filter(|_| !piece.is_empty()) else { return step };
    file[start..].find(piece).map_or(step, |at| location(file, start + at))
}

fn offset(file: &str, location: Location) -> Option<usize> {
    let mut start = 0;
    for _ in 1..location.line {
        start += file[start..].find('\n')? + 1;
    }
    let column = file[start..].char_indices().nth(location.column.saturating_sub(1)).map(|(at, _)| at)?;
    Some(start + column)
}

fn location(file: &str, at: usize) -> Location {
    let before = &file[..at];
    let line = before.rfind('\n').map_or(0, |newline| newline + 1);
    Location { line: before.matches('\n').count() + 1, column: before[line..].chars().count() + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_their_step() {
        let file = "steps:\n- {engine: text, text: 'name {{ x }}'}\n- name: é\n  code: |\n    # x y\n    echo {{ x }}\n";
        let check = |line, column, text, name, expected: (usize, usize)| {
            let found = of_name(file, Location { line, column }, text, name);
            assert_eq!((found.line, found.column), expected, "{text} {name}");
        };
        check(2, 3, "name {{ x }}", "x", (2, 33));
        check(3, 3, "echo {{ x }}\n", "x", (6, 13));
        check(3, 3, "nowhere", "x", (3, 3));
        check(9, 1, "x", "x", (9, 1));
        let found = of_piece(file, Location { line: 3, column: 3 }, "{{ x }}");
        assert_eq!((found.line, found.column), (6, 10));
    }
}
