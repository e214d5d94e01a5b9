//! Checks a call against rules: which of them match its first argument, and the verdict.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::Ruling;
use super::command::{self, Command, Word};
use super::path::{self, Looked};
use alara_team::jinx::{Action, Jinx, Steps};
use alara_team::team::{ANY, JOINTS, Rule};
use alara_team::types::Verdict;

/// The kind of a jinx's first argument, which decides how a prefix is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// A command of a shell.
    Command,
    /// A path.
    Path,
    /// Anything else.
    Text,
}

/// Whether a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    No,
    /// The text doesn't tell.
    Perhaps,
    Yes,
}

/// Parts of input names that are commands.
const COMMANDS: [&str; 2] = ["command", "cmd"];
/// Words in input names that are paths.
const PATHS: [&str; 10] =
    ["path", "paths", "file", "files", "filename", "filepath", "folder", "directory", "dir", "pathname"];
/// The verdict of `rules` on a call of `jinx` with this first argument, in the directory `work`,
/// and the rule that it comes from.
/// `None` if no rule matches.
pub fn verdict(rules: &[&Rule], jinx: &Jinx, first: Option<(&str, &Value)>, work: &Path) -> Option<Ruling> {
    let rules: Vec<&Rule> = rules.iter().copied().filter(|rule| is_about(rule, &jinx.name)).collect();
    let subject = subject(first.map_or("", |(name, _)| name), &jinx.steps);
    let texts = match first.map(|(_, value)| value) {
        None => vec![],
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(values)) if subject == Subject::Path => values
            .iter()
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            .collect(),
        Some(other) => vec![other.to_string()],
    };
    let general = |rule: &Rule| if prefix(rule).is_none() { Fit::Yes } else { Fit::No };
    if texts.is_empty() {
        return decide(&rules, general);
    }
    let looked = Looked::default();
    let of_text = |text: &String| {
        let of_all = decide(&rules, |rule| match prefix(rule) {
            None => Fit::Yes,
            Some(prefix) => whole(subject, rule.verdict, &plain(prefix), text, work, &looked),
        });
        let script = (subject == Subject::Command && rules.iter().any(|rule| prefix(rule).is_some()))
            .then(|| command::read(text));
        let (commands, mentioned) =
            script.map_or_else(Default::default, |script| (script.commands, script.mentioned));
        let parts = commands.into_iter().filter_map(|part| {
            decide(&rules, |rule| match prefix(rule) {
                None => Fit::No,
                // An allow rule covers the whole text, and not the commands that it runs in turn.
                Some(_) if rule.verdict == Verdict::Allow && part.inner => Fit::No,
                Some(_) if rule.verdict != Verdict::Deny && part.inline => Fit::No,
                Some(prefix) if rule.verdict == Verdict::Allow => {
                    whole(subject, Verdict::Allow, &plain(prefix), text, work, &looked)
                }
                Some(prefix) => names(&plain(prefix), &part, work, &looked),
            })
        });
        let hidden = decide(&rules, |rule| match prefix(rule) {
            Some(prefix) if rule.verdict == Verdict::Deny && is_mentioned(prefix, &mentioned) => Fit::Perhaps,
            _ => Fit::No,
        });
        of_all.into_iter().chain(parts).chain(hidden).reduce(Ruling::stricter)
    };
    texts.iter().filter_map(of_text).reduce(Ruling::stricter)
}

/// Finds the longest of the team's own matching rules and of those from above, and returns the
/// stricter of the two.
/// A deny rule that may match becomes a question.
fn decide(rules: &[&Rule], fit: impl Fn(&Rule) -> Fit) -> Option<Ruling> {
    // The last of equals, as `max_by_key` does it.
    let longest = |inherited: bool| {
        let fitting = rules.iter().filter(|rule| rule.inherited == inherited && fit(rule) == Fit::Yes);
        fitting.max_by_key(|rule| rule.pattern.len())
    };
    let certain = [longest(true), longest(false)].into_iter().flatten();
    let certain = certain.max_by_key(|rule| rule.verdict);
    let certain = certain.map(|rule| Ruling::of(rule.verdict, rule.by.clone()));
    // If a deny rule may match, longer rules don't remove the doubt.
    let perhaps = rules.iter().filter(|rule| fit(rule) == Fit::Perhaps);
    let perhaps = perhaps.max_by_key(|rule| (rule.verdict, rule.pattern.len())).map(|rule| Ruling {
        verdict: Verdict::Ask,
        doubtful: rule.verdict == Verdict::Deny,
        by: format!("{}, because the command can't be determined from the text", rule.by),
    });
    certain.into_iter().chain(perhaps).reduce(Ruling::stricter)
}

fn is_about(rule: &Rule, jinx: &str) -> bool {
    let name = rule.pattern.split_once(':').map_or(rule.pattern.as_str(), |(name, _)| name);
    name == jinx || rule.pattern == ANY
}

/// The part of a rule's pattern for the first argument.
fn prefix(rule: &Rule) -> Option<&str> {
    rule.pattern.split_once(':').map(|(_, prefix)| prefix)
}

/// The kind of an input, by its name and by how the steps use it.
fn subject(name: &str, steps: &Steps) -> Subject {
    let lower = name.to_lowercase();
    if COMMANDS.iter().any(|part| lower.contains(part)) || runs(name, steps) {
        return Subject::Command;
    }
    if lower.split(['_', '-']).any(|part| PATHS.contains(&part)) { Subject::Path } else { Subject::Text }
}

/// Whether a step runs the input of this name as a shell script.
fn runs(name: &str, steps: &Steps) -> bool {
    let squeezed = |code: &str| code.split_whitespace().collect::<String>();
    steps.iter().any(|step| match &step.action {
        Action::Bash { code, .. } => {
            let code = squeezed(code);
            let placeholder = format!("{{{{{name}}}}}");
            code == placeholder
                || [format!("\"${name}\""), format!("\"${{{name}}}\""), placeholder].iter().any(|value| {
                    code.contains(&format!("sh-c{value}")) || code.contains(&format!("eval{value}"))
                })
        }
        Action::When { then, otherwise, .. } => runs(name, then) || runs(name, otherwise),
        Action::For { steps, .. } => runs(name, steps),
        Action::Try { steps, catch, finally } => {
            runs(name, steps) || runs(name, catch) || runs(name, finally)
        }
        _ => false,
    })
}

/// A text with single spaces.
pub fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a prefix matches a first argument as a whole.
fn whole(subject: Subject, verdict: Verdict, prefix: &str, text: &str, work: &Path, looked: &Looked) -> Fit {
    let single = plain(text);
    let begins = begins(&single, prefix);
    let fits = match (subject, verdict) {
        (Subject::Path, Verdict::Allow) => !text.contains(JOINTS) && path::stays(work, text, prefix),
        (Subject::Path, _) => {
            path::reaches(looked, work, text, prefix) || path::reaches(looked, work, &single, prefix)
        }
        // An allow rule covers a single command.
        (_, Verdict::Allow) => {
            let folder = prefix.ends_with('/') && !prefix.contains(' ');
            !text.contains(JOINTS) && begins && (!folder || path::stays(work, first_word(text), prefix))
        }
        (Subject::Command, _) => begins,
        // Other rules match anywhere in the text.
        (Subject::Text, _) => {
            begins
                || text.split(JOINTS).any(|part| self::begins(&plain(part), prefix))
                || (prefix.ends_with('/') && path::reaches(looked, work, text, prefix))
        }
    };
    if fits { Fit::Yes } else { Fit::No }
}

/// Whether all words of a prefix are among the names that a program of the text may run.
fn is_mentioned(prefix: &str, mentioned: &BTreeSet<String>) -> bool {
    let mut words = prefix.split_whitespace().filter(|word| !is_option(word));
    let is_name = |word: &str| mentioned.contains(&command::base(word).to_lowercase());
    words.next().is_some_and(|head| !head.ends_with('/') && is_name(head)) && words.all(is_name)
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// Whether a text with single spaces begins with the words of `prefix`.
/// A prefix that ends in `/` is a folder.
fn begins(text: &str, prefix: &str) -> bool {
    if prefix.ends_with('/') {
        let path = text.trim_start_matches("./").replace("//", "/");
        let folder = prefix.trim_start_matches("./");
        // A path that leaves the folder again is not within it.
        return path.starts_with(folder) && path.split('/').all(|part| part != "..");
    }
    text.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// Whether a prefix names a command: the same program in any folder, and the words that follow,
/// with any options between them.
fn names(prefix: &str, command: &Command, work: &Path, looked: &Looked) -> Fit {
    let wanted: Vec<&str> = prefix.split(' ').collect();
    let (Some((head, wanted)), Some((program, args))) = (wanted.split_first(), command.words.split_first())
    else {
        return Fit::No;
    };
    let Word::Text(program) = program else { return Fit::Perhaps };
    if let (Some(_), []) = (head.strip_suffix('/'), wanted) {
        return if path::reaches(looked, work, program, head) { Fit::Yes } else { Fit::No };
    }
    // On some systems, case doesn't matter.
    if !command::base(program).eq_ignore_ascii_case(command::base(head)) {
        return Fit::No;
    }
    let (options, operands): (Vec<&str>, Vec<&str>) = wanted.iter().partition(|word| is_option(word));
    let values = (command::base(program) == "git").then_some(command::GIT_VALUES.as_slice());
    options
        .iter()
        .map(|option| has_option(option, args))
        .fold(has_operands(&operands, args, values), Fit::min)
}

fn is_option(word: &str) -> bool {
    word.starts_with('-') && word.len() > 1
}

/// Whether an option is among the arguments; its letters may be split: `-r -f` contains `-rf`.
fn has_option(option: &str, args: &[Word]) -> Fit {
    let texts = || args.iter().filter_map(|word| if let Word::Text(text) = word { Some(text) } else { None });
    let is_it = |text: &String| {
        let name = text.split('=').next().unwrap_or_default();
        // A long option may be abbreviated.
        name == option || (option.starts_with("--") && name.len() > 3 && option.starts_with(name))
    };
    let clusters = || texts().filter(|text| is_option(text) && !text.starts_with("--"));
    let letters = !option.starts_with("--")
        && option.chars().skip(1).all(|letter| clusters().any(|text| text.contains(letter)));
    if texts().any(is_it) || letters {
        Fit::Yes
    } else if texts().count() < args.len() {
        Fit::Perhaps
    } else {
        Fit::No
    }
}

/// Whether these words are the first arguments that aren't options.
/// An option may have a value as a separate word: if `values` is known, only those in it do.
fn has_operands(wanted: &[&str], args: &[Word], values: Option<&[&str]>) -> Fit {
    let mut fit = Fit::Yes;
    let mut places = BTreeSet::from([0]);
    for wanted in wanted {
        let mut next = BTreeSet::new();
        while let Some(at) = places.pop_first() {
            match args.get(at) {
                None => {}
                // A toolchain, as in `cargo +nightly publish`, counts as an option.
                Some(Word::Text(text)) if is_option(text) || text.starts_with('+') => {
                    match values {
                        Some(values) if values.contains(&text.as_str()) => places.insert(at + 2),
                        Some(_) => places.insert(at + 1),
                        None => {
                            places
                                .extend([at + 1].into_iter().chain((!text.contains('=')).then_some(at + 2)));
                            true
                        }
                    };
                }
                Some(Word::Text(text)) if text == wanted => drop(next.insert(at + 1)),
                Some(Word::Text(_)) => {}
                Some(_) => fit = Fit::Perhaps,
            }
        }
        if next.is_empty() {
            // An unknown word may still match.
            return if fit == Fit::Perhaps { fit } else { Fit::No };
        }
        places = next;
    }
    fit
}
