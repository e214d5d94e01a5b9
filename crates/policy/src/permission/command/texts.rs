//! Whether the text of a program for another program may run a command.

/// Names of variables whose values make runs.
const MADE: [&str; 8] =
    ["SHELL", ".SHELLFLAGS", ".RECIPEPREFIX", "MAKEFILES", "MAKEFLAGS", "GNUMAKEFLAGS", "MFLAGS", "MAKE"];

/// Whether an operand of make may run something: a variable that make expands or a shell reads.
pub(crate) fn make_runs(word: &str) -> bool {
    let set = word.split_once('=').is_some_and(|(name, _)| {
        let plain = name.trim_end_matches([':', '+', '?']).trim();
        plain.ends_with('!') || MADE.contains(&plain)
    });
    set || word.contains(['$', '`', ';', '|', '&', '\n', '<', '>'])
}

/// Whether an awk program may run something: by a pipe, `system`, or an indirect function call.
pub(crate) fn awk_runs(program: &str) -> bool {
    let joined = program.replace("\\\n", "");
    if joined.contains("system") || joined.contains("getline") {
        return true;
    }
    let mut before = ' ';
    let mut twice = false;
    let mut rest = program.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let end = match c {
            '"' => beyond(&program[at + 1..], '"', false),
            '#' => Some(program[at..].find('\n').map_or("", |end| &program[at + end..])),
            // Some implementations divide here, others begin a regular expression.
            '/' if twice => return true,
            // A division.
            '/' if before.is_alphanumeric() || "_)]$".contains(before) => None,
            '/' => match beyond(&program[at + 1..], '/', true) {
                Some(end) if !program[at..program.len() - end.len()].contains('\n') => Some(end),
                _ => return true,
            },
            '|' if rest.next_if(|(_, next)| *next == '|').is_some() => None,
            '|' => return true,
            '@' if program[at + 1..].trim_start().starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                return true;
            }
            _ => None,
        };
        if let Some(end) = end {
            let end = program.len() - end.len();
            while rest.next_if(|(at, _)| *at < end).is_some() {}
        }
        if !c.is_whitespace() {
            twice = c == before && "+-".contains(c);
            before = if c == '"' { ')' } else { c };
        }
    }
    false
}

/// Whether a sed program may run something, as GNU sed does with `e` and with the flag `e` of `s`.
pub(crate) fn sed_runs(script: &str) -> bool {
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || ";{}!,0123456789$~+".contains(c));
        let Some(command) = rest.chars().next() else { return false };
        rest = &rest[command.len_utf8()..];
        match command {
            'e' => return true,
            // An address.
            '/' | '\\' => {
                let delimiter = if command == '/' { Some('/') } else { rest.chars().next() };
                let Some(delimiter) = delimiter else { return true };
                let from = if command == '/' { 0 } else { delimiter.len_utf8() };
                let Some(after) = beyond(&rest[from..], delimiter, true) else { return true };
                rest = after.trim_start_matches(['I', 'M']);
            }
            's' | 'y' => {
                let Some(delimiter) = rest.chars().next() else { return true };
                let after = beyond(&rest[delimiter.len_utf8()..], delimiter, command == 's');
                let Some(after) = after.and_then(|after| beyond(after, delimiter, false)) else {
                    return true;
                };
                let end = after.find([';', '\n', '}']).unwrap_or(after.len());
                if command == 's' && after[..end].split('w').next().is_some_and(|flags| flags.contains('e')) {
                    return true;
                }
                rest = &after[end..];
            }
            // Texts and file names extend to the end of the line.
            'a' | 'i' | 'c' | 'r' | 'R' | 'w' | 'W' | '#' | ':' | 'b' | 't' | 'T' => {
                let ends: &[char] = if "bt:T".contains(command) { &[';', '\n'] } else { &['\n'] };
                rest = rest.find(ends).map_or("", |at| &rest[at..]);
            }
            _ => {}
        }
    }
}

/// The text after the next delimiter that is neither escaped nor, with `sets`, inside brackets.
fn beyond(text: &str, delimiter: char, sets: bool) -> Option<&str> {
    let (mut at, mut set) = (0, false);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at + c.len_utf8()..];
        at += c.len_utf8();
        if set {
            let class = (c == '[').then(|| [":", ".", "="].iter().find(|sign| rest.starts_with(**sign)));
            if let Some(sign) = class.flatten() {
                at += rest[1..].find(&format!("{sign}]")).map_or(0, |end| end + 3);
            }
            set = c != ']';
        } else if c == delimiter {
            return Some(rest);
        } else if c == '\\' {
            at += rest.chars().next().map_or(0, char::len_utf8);
        } else if c == '[' && sets {
            set = true;
            // A bracket in the first place belongs to the set.
            at += usize::from(rest.starts_with('^'));
            at += usize::from(text[at..].starts_with(']'));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_awk_that_run_something_are_told_from_others() {
        for runs in [
            "BEGIN{system(\"rm x\")}",
            "{print | \"sh\"}",
            "BEGIN{\"rm x\"|getline}",
            "BEGIN{f=\"s\" \"ystem\"; @f(\"rm x\")}",
            "{x++ / 1; print $1 | \"sh\"; y = 1 / 2}",
            "{print |& \"sh\"}",
            "/a/{print|\"sh\"}",
            "{y = x / 2; print | \"sh /\"}",
            "{y = \"a\" / 2; print | \"sh /\"}",
            "{x = \"[\"; print | \"sh\"; y = \"]\"}",
        ] {
            assert!(awk_runs(runs), "{runs}");
        }
        for runs_not in [
            "{print $1}",
            "/a|b/",
            "$1 ~ /a|b/ {print}",
            "NR==1 || NR==3",
            "{print \"a|b\"}",
            "{print $1 / $2}",
            "BEGIN{x=1} # a | b",
            "/[|/]a|b/",
            "{ print $1 \"@\" $2 }",
            "$1 == \"x\" || /y|z/",
        ] {
            assert!(!awk_runs(runs_not), "{runs_not}");
        }
    }

    #[test]
    fn programs_of_sed_that_run_something_are_told_from_others() {
        for runs in [
            "e",
            "1e rm x",
            "s/x/rm y/e",
            "s/x/y/ge",
            "/x/e rm y",
            "p;e rm x",
            "1,3{s/a/b/;e ls\n}",
            "s|a|b|e",
            "\\,x,e rm",
            "s/[/]/rm x/e",
            "s/[]/]/rm x/e",
            "s/[^]/]/rm x/e",
            "s/[[:alpha:]/]/rm/e",
            "s/a",
            "/x",
            "$!e rm x",
            "s/a\\/b/rm/e",
            "y/ab/cd/;e rm",
        ] {
            assert!(sed_runs(runs), "{runs}");
        }
        for runs_not in [
            "s/e/f/",
            "s/a/b/g",
            "/end/d",
            "p",
            "$d",
            "1,5p",
            "s/[/]e/f/",
            "s/x/y/w e",
            "a\\\ntext e",
            "/e/,/f/p",
            "s,e,e,",
            "y/e/f/",
            ":e;N;be",
            "r e.txt",
            "s/a/[e/",
            "s/[]e/]/x/",
            "s[a[e[g",
        ] {
            assert!(!sed_runs(runs_not), "{runs_not}");
        }
    }
}
