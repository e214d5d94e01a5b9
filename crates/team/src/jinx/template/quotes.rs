//! Finds placeholders in quotes: a reference there would be part of a text, so it is refused, with
//! a suggested rewrite.
//!
//! Programs are parsed only as far as quotes, comments and here-documents.

use std::fmt;

use super::code::{Language, Piece, pieces};
use crate::types::Location;

/// A placeholder in quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Its location in the program: line and column, from 1.
    pub location: Location,
    /// The text found.
    pub found: String,
    /// The text to write instead.
    pub rewrite: String,
}

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quoted { location, found, rewrite } = self;
        write!(f, "`{found}` in line {} of the code stands in quotes: write {rewrite}", location.line)
    }
}

/// The context of a position in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Context {
    /// Code.
    /// In bash: the character that ends it, if it is nested.
    Code(Option<char>),
    /// A string, by the quotes that end it, and where it begins.
    /// In bash's single quotes nothing is special.
    Quotes(&'static str, usize),
    /// bash arithmetic, with this many open brackets: values would be evaluated there.
    Arithmetic(usize),
    /// bash's `$[…]` and `${…}`, by the character that ends it: values in it may be evaluated.
    /// With whether single quotes count.
    Expansion(char, bool),
    /// A comment, to the end of the line.
    Comment,
    /// A here-document up to a line; with whether tabs before that line are ignored.
    Document(String, bool),
}

/// The first placeholder of a program that is in quotes, in a here-document or in arithmetic.
pub(crate) fn quoted_placeholder(language: Language, text: &str) -> Option<Quoted> {
    let mut reader =
        Reader { text, at: 0, contexts: vec![Context::Code(None)], documents: Vec::new(), begun: Vec::new() };
    for piece in pieces(text) {
        match piece {
            Piece::Text(range) => {
                reader.at = range.start;
                while reader.at < range.end {
                    match language {
                        Language::Bash => reader.bash(range.end),
                        Language::Python => reader.python(range.end),
                    }
                }
            }
            Piece::Expression(range, inside) => {
                if let Some(quoted) = reader.quoted(language, range, &text[inside]) {
                    return Some(quoted);
                }
            }
            Piece::Tag(..) => {}
        }
    }
    None
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// The innermost context is last.
    contexts: Vec<Context>,
    /// Here-documents that begin after the line: the end, and whether tabs before it are ignored.
    documents: Vec<(String, bool)>,
    /// Where bash commands begin: how many contexts were open, and the offset.
    begun: Vec<(usize, usize)>,
}

impl Reader<'_> {
    fn quoted(&self, language: Language, range: std::ops::Range<usize>, inside: &str) -> Option<Quoted> {
        let placeholder = &self.text[range.clone()];
        let (found, rewrite) = match self.contexts.last()? {
            Context::Code(_)
                if language == Language::Bash
                    && computed(
                        &self.text[..range.start],
                        self.command(self.contexts.len(), range.start),
                        &self.text[range.end..],
                    ) =>
            {
                (
                    placeholder,
                    format!(
                        "`[ {placeholder} -gt 3 ]` or the computation into the placeholder: bash runs what stands in this one"
                    ),
                )
            }
            Context::Code(_)
                if language == Language::Bash
                    && interpreted(
                        self.command(self.contexts.len(), range.start),
                        &self.text[range.end..],
                    ) =>
            {
                (placeholder, argument(placeholder))
            }
            Context::Code(_) | Context::Comment => return None,
            Context::Expansion(..) => {
                (placeholder, format!("the whole computation into the placeholder: `{{{{ {inside} + 1 }}}}`"))
            }
            Context::Quotes(quotes, begun) => {
                let close = quotes.trim_start_matches('$');
                let whole = *begun == range.start && self.text[range.end..].starts_with(close);
                let end = if whole { range.end + close.len() } else { range.end };
                let start = if whole { begun - quotes.len() } else { range.start };
                let rewrite = match language {
                    _ if whole => format!("`{placeholder}`"),
                    // Without the quotes it would be part of another program's text.
                    Language::Bash
                        if INTERPRETERS.contains(&words(self.command(self.contexts.len() - 1, start)).0) =>
                    {
                        argument(placeholder)
                    }
                    Language::Bash => format!("`…{close}{placeholder}{quotes}…`"),
                    Language::Python => format!("`…{quotes} + str({placeholder}) + {quotes}…`"),
                };
                (&self.text[start..end], rewrite)
            }
            Context::Arithmetic(_) => {
                (placeholder, format!("the whole sum into the placeholder: `{{{{ {inside} + 1 }}}}`"))
            }
            Context::Document(..) => {
                (placeholder, format!("`value={placeholder}` before the here-document, and `$value` in it"))
            }
        };
        let before = &self.text[..range.start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let location = Location {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        };
        Some(Quoted { location, found: found.to_owned(), rewrite })
    }

    /// The character at the offset and the one before it.
    fn here(&self) -> (char, char) {
        let before = self.text[..self.at].chars().next_back().unwrap_or('\n');
        (before, self.text[self.at..].chars().next().unwrap_or('\n'))
    }

    fn starts(&self, with: &str) -> bool {
        self.text[self.at..].starts_with(with)
    }

    fn skip(&mut self, bytes: usize, part: Option<Context>) {
        self.at += bytes;
        let code = matches!(part, Some(Context::Code(_)));
        self.contexts.extend(part);
        if code {
            self.begun.push((self.contexts.len(), self.at));
        }
    }

    fn leave(&mut self, bytes: usize) {
        self.at += bytes;
        if self.contexts.len() > 1 {
            self.contexts.pop();
        }
        let open = self.contexts.len();
        self.begun.retain(|(contexts, _)| *contexts <= open);
    }

    /// The text of the bash command up to an offset, in which this many contexts were open.
    fn command(&self, contexts: usize, end: usize) -> &str {
        let begun = self.begun.iter().rev().find(|(open, _)| *open == contexts).map_or(0, |(_, at)| *at);
        &self.text[begun.min(end)..end]
    }

    /// Advances one step through Python.
    fn python(&mut self, end: usize) {
        let (_, here) = self.here();
        let width = here.len_utf8();
        match self.contexts.last().cloned() {
            Some(Context::Quotes(quotes, _)) => {
                if here == '\\' {
                    self.at =
                        (self.at + 1 + self.text[self.at + 1..].chars().next().map_or(0, char::len_utf8))
                            .min(end);
                } else if self.starts(quotes) {
                    self.leave(quotes.len());
                } else if here == '\n' && quotes.len() == 1 {
                    self.leave(width);
                } else {
                    self.at += width;
                }
            }
            Some(Context::Comment) if here == '\n' => self.leave(width),
            Some(Context::Comment) => self.at += width,
            _ => {
                let quotes = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quotes| self.starts(quotes));
                match quotes {
                    Some(quotes) => {
                        self.skip(quotes.len(), Some(Context::Quotes(quotes, self.at + quotes.len())));
                    }
                    None if here == '#' => self.skip(1, Some(Context::Comment)),
                    None => self.at += width,
                }
            }
        }
    }

    /// Advances one step through bash.
    fn bash(&mut self, end: usize) {
        let (before, here) = self.here();
        let width = here.len_utf8();
        let escaped =
            |reader: &Self| 1 + reader.text[reader.at + 1..].chars().next().map_or(0, char::len_utf8);
        match self.contexts.last().cloned().unwrap_or(Context::Code(None)) {
            Context::Comment if here == '\n' => {
                self.contexts.pop();
            }
            Context::Comment => self.at += width,
            Context::Quotes("'", _) if here == '\'' => self.leave(1),
            Context::Quotes("'", _) => self.at += width,
            Context::Quotes(quotes, _) => match here {
                '\\' => self.at = (self.at + escaped(self)).min(end),
                _ if quotes == "$'" && here == '\'' => self.leave(1),
                '"' if quotes == "\"" => self.leave(1),
                '$' if quotes == "\"" && self.nested() => {}
                '`' if quotes == "\"" => self.skip(1, Some(Context::Code(Some('`')))),
                _ => self.at += width,
            },
            Context::Expansion(close, single) => match here {
                '\\' => self.at = (self.at + escaped(self)).min(end),
                _ if here == close => self.leave(1),
                '\'' if single => self.skip(1, Some(Context::Quotes("'", self.at + 1))),
                '"' => self.skip(1, Some(Context::Quotes("\"", self.at + 1))),
                '`' => self.skip(1, Some(Context::Code(Some('`')))),
                '$' if self.nested() => {}
                _ => self.at += width,
            },
            Context::Arithmetic(open) => {
                let last = self.contexts.len() - 1;
                match here {
                    ')' if open == 0 => self.leave(if self.starts("))") { 2 } else { 1 }),
                    ')' => self.skip(1, None),
                    '(' => self.skip(1, None),
                    _ => self.at += width,
                }
                match here {
                    '(' => self.contexts[last] = Context::Arithmetic(open + 1),
                    ')' if open > 0 => self.contexts[last] = Context::Arithmetic(open - 1),
                    _ => {}
                }
            }
            Context::Document(word, tabs) => {
                let line = self.text[self.at..].split('\n').next().unwrap_or_default();
                let ended =
                    before == '\n' && (if tabs { line.trim_start_matches('\t') } else { line }) == word;
                if ended {
                    self.at += line.len();
                    self.contexts.pop();
                    self.open_document();
                } else {
                    // A placeholder may end the piece in the middle of a line.
                    self.at = (self.at + line.len() + 1).min(end);
                }
            }
            Context::Code(close) => {
                if matches!(here, ';' | '|' | '&' | '\n') {
                    self.begun.push((self.contexts.len(), self.at + width));
                }
                match here {
                    '\\' => self.at = (self.at + escaped(self)).min(end),
                    _ if Some(here) == close => self.leave(1),
                    '\'' => self.skip(1, Some(Context::Quotes("'", self.at + 1))),
                    '"' => self.skip(1, Some(Context::Quotes("\"", self.at + 1))),
                    '`' => self.skip(1, Some(Context::Code(Some('`')))),
                    '$' if self.starts("$'") => self.skip(2, Some(Context::Quotes("$'", self.at + 2))),
                    '$' if self.nested() => {}
                    '(' if self.starts("((") => self.skip(2, Some(Context::Arithmetic(0))),
                    '(' => self.skip(1, Some(Context::Code(Some(')')))),
                    '#' if before.is_whitespace() || matches!(before, ';' | '(' | '|' | '&') => {
                        self.skip(1, Some(Context::Comment));
                    }
                    '<' if self.starts("<<<") => self.at += 3,
                    '<' if self.starts("<<") => self.announce(),
                    '\n' => {
                        self.at += 1;
                        self.open_document();
                    }
                    _ => self.at += width,
                }
            }
        }
    }

    /// Enters `$(`, `$((`, `$[` or `${`.
    fn nested(&mut self) -> bool {
        if self.starts("$((") {
            self.skip(3, Some(Context::Arithmetic(0)));
        } else if self.starts("$(") {
            self.skip(2, Some(Context::Code(Some(')'))));
        } else if self.starts("$[") || self.starts("${") {
            let close = if self.starts("$[") { ']' } else { '}' };
            let single =
                !matches!(self.contexts.last(), Some(Context::Quotes(..) | Context::Expansion(_, false)));
            self.skip(2, Some(Context::Expansion(close, single)));
        } else {
            return false;
        }
        true
    }

    /// Reads `<<WORD`, `<<-WORD` or `<<'WORD'`.
    fn announce(&mut self) {
        self.at += 2;
        let tabs = self.starts("-");
        let rest = &self.text[self.at + usize::from(tabs)..];
        let word = rest.trim_start_matches([' ', '\t']);
        let length = word.find(|c: char| c.is_whitespace() || ";|&<>)".contains(c)).unwrap_or(word.len());
        self.at = self.text.len() - word.len() + length;
        let word: String = word[..length].chars().filter(|c| !"'\"\\".contains(*c)).collect();
        if !word.is_empty() {
            self.documents.push((word, tabs));
        }
    }

    fn open_document(&mut self) {
        if !self.documents.is_empty() {
            let (word, tabs) = self.documents.remove(0);
            self.contexts.push(Context::Document(word, tabs));
        }
    }
}

/// Programs that run a text from their arguments.
const INTERPRETERS: [&str; 19] = [
    "ash", "awk", "bash", "dash", "eval", "gawk", "jq", "ksh", "mawk", "node", "perl", "php", "python",
    "python3", "ruby", "sed", "sh", "ssh", "zsh",
];

/// What to do instead of putting a value into the text of a program that another one runs.
fn argument(placeholder: &str) -> String {
    format!(
        "the value as an argument, which the inner program reads: `bash -c '… \"$1\" …' _ {placeholder}`, `awk -v x={placeholder} …`"
    )
}

/// Whether a value would become part of the text of a program that a command runs.
/// It would if it is attached to a quoted piece, or evaluated.
fn interpreted(command: &str, after: &str) -> bool {
    let (name, _, _) = words(command);
    let quote = |c: char| c == '\'' || c == '"';
    INTERPRETERS.contains(&name) && (name == "eval" || command.ends_with(quote) || after.starts_with(quote))
}

/// A command up to an offset: its name without folders, its words so far, and the beginning of the
/// current word.
fn words(command: &str) -> (&str, Vec<&str>, &str) {
    let glued = !command.ends_with(char::is_whitespace);
    let mut words: Vec<&str> = command.split_whitespace().collect();
    let word = if glued { words.pop().unwrap_or_default() } else { "" };
    let prefixes = [
        "if", "then", "elif", "else", "while", "until", "do", "!", "{", "builtin", "command", "time", "exec",
        "env", "sudo", "nohup", "xargs",
    ];
    let mut words = words.into_iter().skip_while(|w| prefixes.contains(w) || w.contains('='));
    let name = words.next().unwrap_or_default();
    (name.rsplit('/').next().unwrap_or(name), words.collect(), word)
}

/// Whether bash would evaluate a value between two pieces of code: it then runs commands in
/// subscripts.
fn computed(before: &str, command: &str, after: &str) -> bool {
    let test = before.rfind("[[ ").filter(|open| !before[*open..].contains(" ]]"));
    if let Some(open) = test {
        let rest = after.split_inclusive(" ]]").next().unwrap_or_default();
        let operators = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v"];
        return before[open..]
            .split_whitespace()
            .chain(rest.split_whitespace())
            .any(|w| operators.contains(&w));
    }
    let (name, arguments, word) = words(command);
    let last = arguments.last().copied().unwrap_or_default();
    let subscript =
        word.contains('[') && !word.contains(']') && (after.starts_with("]=") || after.starts_with("]+="));
    if subscript || last.starts_with('<') || word.starts_with('<') {
        return subscript;
    }
    match name {
        "let" | "unset" => true,
        "declare" | "typeset" | "local" | "readonly" => {
            !word.contains('=')
                || arguments.iter().any(|w| w.starts_with('-') && w.contains(['i', 'n', 'a', 'A']))
        }
        "printf" => last == "-v" || word == "-v",
        "read" => !(last.starts_with('-') && last.ends_with(['d', 'i', 'n', 'N', 'p', 't', 'u'])),
        "test" | "[" => last == "-v",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(language: Language, text: &str, expected: Option<(&str, &str)>) {
        let found = quoted_placeholder(language, text).map(|quoted| (quoted.found, quoted.rewrite));
        let expected = expected.map(|(found, rewrite)| (found.to_owned(), rewrite.to_owned()));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn bash() {
        let check = |text, expected| check(Language::Bash, text, expected);
        check("echo {{ q }} # it's {{ q }}", None);
        check("echo '{{ q }}'", Some(("'{{ q }}'", "`{{ q }}`")));
        check("echo \"{{ q }}\"", Some(("\"{{ q }}\"", "`{{ q }}`")));
        check("echo \"a {{ q }}\"", Some(("{{ q }}", "`…\"{{ q }}\"…`")));
        check("echo 'a'{{ q }}'b' it\\'s {{ q }}", None);
        check("echo \"a \\\" {{ q }}\"", Some(("{{ q }}", "`…\"{{ q }}\"…`")));
        check("echo \"$(echo {{ q }} \"x\")\" {{ q }} `cat {{ q }}`", None);
        check("echo \"$(echo '{{ q }}')\"", Some(("'{{ q }}'", "`{{ q }}`")));
        check("echo $'{{ q }}'", Some(("$'{{ q }}'", "`{{ q }}`")));
        check("echo $'a{{ q }}'", Some(("{{ q }}", "`…'{{ q }}$'…`")));
        check("echo ${#x} $# \"${x#a}\" {{ q }} # '", None);
        check("x=$(( {{ n }} * 2 ))", Some(("{{ n }}", "the whole sum into the placeholder: `{{ n + 1 }}`")));
        check("x=$(( (1 + 2) * 3 )); echo {{ q }}", None);
        check("cat <<EOF\nit's\nEOF\necho {{ q }}", None);
        let document = Some(("{{ q }}", "`value={{ q }}` before the here-document, and `$value` in it"));
        check("cat <<'EOF' | wc\na {{ q }}\nEOF", document);
        check("cat <<-EOF\n\tEO\n\tEOF\ncat <<A <<B\n\"\nA\n{{ q }}\nB", document);
        check("cat <<< {{ q }}", None);
        check("awk '{{print $1}}' {{ q }}", None);
    }

    #[test]
    fn what_bash_would_compute_is_refused() {
        let refused = |text: &str| quoted_placeholder(Language::Bash, text).is_some();
        for text in [
            "[[ {{ n }} -gt 3 ]]",
            "if [[ a == b && 3 -lt {{ n }} ]]; then x; fi",
            "[[ -v {{ n }} ]]",
            "echo ${arr[{{ n }}]}",
            "echo \"${s:{{ n }}:1}\"",
            "x=$[ {{ n }} + 1 ]",
            "arr[{{ n }}]=1",
            "true; let y={{ n }}",
            "declare -i z={{ n }}",
            "local {{ n }}=1",
            "printf -v {{ n }} x",
            "test -v {{ n }}",
            "[ -v {{ n }} ]",
            "unset {{ n }}",
            "read -r {{ n }}",
            "echo ${x%% #*}; cat <<EOF\n{{ n }}\nEOF",
        ] {
            assert!(refused(text), "{text}");
        }
        for text in [
            "[ {{ n }} -gt 3 ]",
            "[[ {{ n }} == a ]] && [ 1 -gt {{ n }} ]",
            "local x={{ n }}",
            "printf -v x '%s' {{ n }}",
            "read -r x <<< {{ n }}",
            "read -p {{ n }} x",
            "echo let {{ n }} \"${x:-it's}\" {{ n }}",
            "declare -A m; echo ${x%\\'} {{ n }}",
        ] {
            assert!(!refused(text), "{text}");
        }
    }

    #[test]
    fn no_value_becomes_a_part_of_an_inner_program() {
        let found = |text: &str| quoted_placeholder(Language::Bash, text).map(|quoted| quoted.rewrite);
        for text in [
            "bash -c 'echo '{{ n }}",
            "/bin/sh -c {{ n }}' | wc'",
            "sudo python3 -c 'print('{{ n }}')'",
            "ls | xargs awk '/'{{ n }}'/ {print}'",
            "eval {{ n }}",
            "bash -c 'echo {{ n }}'",
            "sed \"s/x/{{ n }}/\"",
        ] {
            assert!(
                found(text).is_some_and(|advice| advice.contains("as an argument")),
                "{text}: {:?}",
                found(text)
            );
        }
        for text in
            ["bash -c 'echo \"$1\"' _ {{ n }}", "awk -v x={{ n }} '{print x}'", "python3 run.py --n={{ n }}"]
        {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn python() {
        let check = |text, expected| check(Language::Python, text, expected);
        check("x = {{ q }} # it's {{ q }}\ny = {{ q }}", None);
        check("x = '{{ q }}'", Some(("'{{ q }}'", "`{{ q }}`")));
        check("x = f\"a {{ q }}\"", Some(("{{ q }}", "`…\" + str({{ q }}) + \"…`")));
        check("x = '''a\n'{{ q }}'''", Some(("{{ q }}", "`…''' + str({{ q }}) + '''…`")));
        check("x = 'it\\'s' + {{ q }} + \"'\" + {{ q }}", None);
        check("x = '\ny = {{ q }}", None);
        check("{% if a %}x = 'a'{% endif %}\nx = {{ q }}", None);
    }

    #[test]
    fn the_place_is_told() {
        let quoted = quoted_placeholder(Language::Bash, "echo é\necho é '{{ q }}'").unwrap();
        assert_eq!(quoted.location, Location { line: 2, column: 9 });
        let expected = "`'{{ q }}'` in line 2 of the code stands in quotes: write `{{ q }}`";
        assert_eq!(quoted.to_string(), expected);
    }
}
