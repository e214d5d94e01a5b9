//! `permissions`: rules about calls, in a `.ctx` or in `permissions.yaml`.
//!
//! ```yaml
//! permissions:
//!   default: ask                 # every jinx
//!   py: deny
//!   shell:git push: ask          # a jinx and the beginning of its first argument
//!   shell: {default: ask, ls: allow}
//! ```
//! This module must not know how rules are checked against calls.

use std::collections::BTreeSet;
use std::path::Path;

use alara_text::{nearest, resembles};
use serde::Serialize;
use serde_json::Value;

use super::check::unusable;
use super::library::Library;
use crate::mcp::START;
use crate::source::Source;
use crate::types::{Diagnostic, Location, Verdict};
use crate::yaml::Node;

/// Characters that join or nest commands in a shell: a command with one of these is several.
pub const JOINTS: [char; 13] = [';', '|', '&', '$', '`', '<', '>', '(', ')', '{', '}', '\n', '\r'];

/// The pattern of a rule for every jinx that no other rule covers.
pub const ANY: &str = "*";

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// A jinx, or a jinx and a prefix: `shell`, `shell:git push`.
    pub pattern: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Its location, for the trace.
    pub by: String,
    /// Whether it comes from a team above: then no rule of this team permits more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inherited: bool,
}

/// Other names of jinxes; a rule for one also applies to the other.
const RENAMED: [(&str, &str); 3] = [("sh", "shell"), ("bash", "shell"), ("python", "py")];

/// Reads the rules of a team below a team with the rules `above`.
/// A rule here can't permit what those rules don't permit.
/// A rule with an unreadable verdict counts as `deny`, with an error.
pub fn read(source: &Source, node: &Node, above: &[Rule], diagnostics: &mut Vec<Diagnostic>) -> Vec<Rule> {
    let Some(entries) = node.entries() else {
        if node.is_null() {
            return Vec::new();
        }
        let message =
            format!("permissions are a mapping of jinxes to allow, ask or deny, not {}", node.describe());
        diagnostics.push(source.error(node.location, message));
        return vec![cautious(&source.path)];
    };
    let mut rules = Vec::new();
    for entry in entries {
        let name = if entry.key.trim() == "default" { ANY } else { entry.key.trim() };
        let Some(prefixes) = entry.value.entries() else {
            rules.push((entry.location, normal(name), verdict(source, &entry.value, diagnostics)));
            continue;
        };
        for prefix in prefixes {
            let pattern = match prefix.key.trim() {
                "default" | ANY => name.to_owned(),
                prefix => format!("{name}:{prefix}"),
            };
            rules.push((prefix.location, normal(&pattern), verdict(source, &prefix.value, diagnostics)));
        }
    }
    let (mut copies, mut kept) = (Vec::new(), Vec::new());
    for (location, pattern, verdict) in rules {
        let pattern = match beginning(&pattern) {
            Ok(()) => pattern,
            Err(jinx) => {
                let message = format!(
                    "the rule `{pattern}` fits nothing: after `:` comes the beginning of the argument, and `*` is \
                     no pattern there; `{jinx}` alone is about all calls"
                );
                diagnostics.push(source.error(location, message));
                // What was to be held is held, and nothing is permitted.
                if verdict == Verdict::Allow {
                    continue;
                }
                jinx.to_owned()
            }
        };
        let by = format!("{}:{}", file(&source.path), location.line);
        // A rule for an old name also applies to the new name.
        let of_new = renamed(&pattern);
        let covered = |wide: &str| {
            covers(wide, &pattern) || of_new.as_ref().is_some_and(|pattern| covers(wide, pattern))
        };
        let weaker = |other: &&Rule| verdict < other.verdict && covered(&other.pattern);
        if let Some(other) = above.iter().find(weaker) {
            let message = format!(
                "the rule for `{pattern}` has no effect: {} forbids more, for the whole team",
                other.by
            );
            diagnostics.push(source.warning(location, message));
            continue;
        }
        copies.extend(renamed(&pattern).map(|pattern| Rule {
            pattern,
            verdict,
            by: by.clone(),
            inherited: false,
        }));
        let rule = Rule { pattern, verdict, by, inherited: false };
        if never_fits(&rule) {
            let message = format!(
                "the rule for `{}` has no effect: a command that joins several is never allowed by a prefix",
                rule.pattern
            );
            diagnostics.push(source.warning(location, message));
        }
        kept.push(rule);
    }
    // Rules for the new name itself come last, so that they win.
    copies.append(&mut kept);
    copies
}

/// Adds the rules of a second file of a team.
/// Of two rules with the same pattern, the stricter one applies.
pub fn join(rules: &mut Vec<Rule>, second: &[Rule], source: &Source, diagnostics: &mut Vec<Diagnostic>) {
    let first = rules.len();
    for (at, rule) in second.iter().enumerate() {
        let mut rule = rule.clone();
        // The last one in a file wins.
        let is_last = second[at + 1..].iter().all(|later| later.pattern != rule.pattern);
        let same = |other: &&Rule| is_last && !other.inherited && other.pattern == rule.pattern;
        if let Some(other) = rules[..first].iter().rfind(same).filter(|other| other.verdict != rule.verdict) {
            let stricter = if other.verdict > rule.verdict { &other.by } else { &rule.by };
            let message = format!(
                "{} and {} have different rules for `{}`: the stricter one holds, that of {stricter}",
                other.by, rule.by, rule.pattern
            );
            diagnostics.push(source.warning(Location::default(), message));
            if other.verdict > rule.verdict {
                rule.verdict = other.verdict;
                rule.by.clone_from(&other.by);
            }
        }
        rules.push(rule);
    }
}

/// Why a file of rules binds nobody: it is no mapping, or has its rules under a key as in a `.ctx`.
pub(crate) fn misplaced(source: &Source, node: &Node) -> Option<Diagnostic> {
    let Some(entries) = node.entries() else {
        let message = "this is no mapping of jinxes to rules: nobody of the team runs";
        return (!node.is_null()).then(|| source.error(node.location, message));
    };
    let key = entries.iter().find(|entry| entry.key.trim() == "permissions")?;
    let message = "rules come without the key `permissions` here, so leave that line out and unindent the \
                   rules: nobody of the team runs";
    Some(source.error(key.location, message))
}

/// Reports rules about jinxes that are neither in `library` nor among `others`.
/// Returns the reason to let no NPC of the team run: such a rule that denies or asks.
pub fn unknown(
    source: &Source,
    node: &Node,
    library: &Library,
    others: &BTreeSet<String>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Diagnostic> {
    let mut reason = None;
    for entry in node.entries().into_iter().flatten() {
        let name = entry.key.split(':').next().unwrap_or_default().trim();
        let known = ["default", ANY, START].contains(&name)
            || current_name(name) != name
            || library.get(name).is_some()
            || others.contains(name)
            || unusable(name, diagnostics).is_some();
        if known {
            continue;
        }
        let names = || library.names().chain(others.iter().map(String::as_str));
        let last = name.rsplit('/').next().unwrap_or(name);
        let lower = last.to_lowercase();
        let near = names()
            .find(|other| resembles(last, other))
            .or_else(|| nearest(last, names()))
            .or_else(|| names().find(|other| *other == current_name(&lower)));
        let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
        if !forbids(&entry.value) {
            diagnostics.push(source.warning(entry.location, format!("there is no jinx `{name}`{hint}")));
            continue;
        }
        let then = if hint.is_empty() { ": nobody" } else { " Nobody" };
        let error = source.error(
            entry.location,
            format!(
                "there is no jinx `{name}`{hint}{then} of the team runs; if a client brings this tool, list it \
                 under `jinxes` of an NPC"
            ),
        );
        diagnostics.push(error.clone());
        reason.get_or_insert(error);
    }
    reason
}

/// The name of a jinx that may be given by another one, as `bash`.
pub fn current_name(name: &str) -> &str {
    RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new)
}

/// Whether a rule, or one of the rules about a jinx, denies or asks.
fn forbids(rule: &Node) -> bool {
    match rule.entries() {
        Some(rules) => rules.iter().any(|rule| forbids(&rule.value)),
        None => rule.text() != Some("allow"),
    }
}

/// A rule for every jinx, which applies if the rules are unreadable.
pub fn cautious(path: &Path) -> Rule {
    let by = format!("{}, which can't be read", file(path));
    Rule { pattern: ANY.to_owned(), verdict: Verdict::Ask, by, inherited: false }
}

/// The rules that also apply to sub-teams: all that don't permit.
pub fn strict(rules: &[Rule]) -> Vec<Rule> {
    let strict = rules.iter().filter(|rule| rule.verdict != Verdict::Allow);
    strict.map(|rule| Rule { inherited: true, ..rule.clone() }).collect()
}

/// Adds a rule for each jinx to one for all, which covers jinxes that aren't known yet; the others
/// override it.
pub fn expanded(rules: &[Rule], library: &Library) -> Vec<Rule> {
    let (any, others): (Vec<&Rule>, Vec<&Rule>) = rules.iter().partition(|rule| rule.pattern == ANY);
    let each = |rule: &Rule| -> Vec<Rule> {
        let names = library.names().chain([ANY]);
        names.map(|name| Rule { pattern: name.to_owned(), ..rule.clone() }).collect()
    };
    any.into_iter().flat_map(each).chain(others.into_iter().cloned()).collect()
}

/// Whether a rule can never match: an allow rule covers one command, and this prefix joins several.
fn never_fits(rule: &Rule) -> bool {
    let prefix = rule.pattern.split_once(':').map_or("", |(_, prefix)| prefix);
    rule.verdict == Verdict::Allow && prefix.contains(JOINTS)
}

/// A pattern in its normal form: with single spaces, and none around its parts.
fn normal(pattern: &str) -> String {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    match pattern.split_once(':') {
        Some((name, prefix)) => format!("{}:{}", plain(name), plain(prefix)),
        None => plain(pattern),
    }
}

/// Whether a pattern has a beginning of an argument that may fit; the error is its jinx.
fn beginning(pattern: &str) -> Result<(), &str> {
    match pattern.split_once(':') {
        Some((jinx, prefix)) if prefix.is_empty() || prefix.ends_with('*') => Err(jinx),
        _ => Ok(()),
    }
}

/// The pattern with the new name of a jinx.
fn renamed(pattern: &str) -> Option<String> {
    RENAMED.iter().find_map(|(old, new)| {
        let rest = pattern.strip_prefix(old)?;
        (rest.is_empty() || rest.starts_with(':')).then(|| format!("{new}{rest}"))
    })
}

/// Whether everything that matches `narrow` also matches `wide`, as far as the patterns tell: for a
/// warning, since a rule from above applies anyway.
fn covers(wide: &str, narrow: &str) -> bool {
    if wide == ANY || wide == narrow {
        return true;
    }
    let Some(rest) = narrow.strip_prefix(wide) else { return false };
    rest.starts_with(':') || (wide.contains(':') && (rest.starts_with(' ') || wide.ends_with('/')))
}

fn file(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn verdict(source: &Source, node: &Node, diagnostics: &mut Vec<Diagnostic>) -> Verdict {
    match node.value() {
        Value::String(word) if word == "allow" => Verdict::Allow,
        Value::String(word) if word == "ask" => Verdict::Ask,
        Value::String(word) if word == "deny" => Verdict::Deny,
        other => {
            let message = format!("a verdict is allow, ask or deny, not {other}; this counts as deny");
            diagnostics.push(source.error(node.location, message));
            Verdict::Deny
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_joins_commands_is_never_allowed() {
        let rule = |pattern: &str, verdict| {
            never_fits(&Rule { pattern: pattern.into(), verdict, by: String::new(), inherited: false })
        };
        assert!(rule("shell:a | b", Verdict::Allow));
        assert!(!rule("shell:a | b", Verdict::Deny) && !rule("shell:a", Verdict::Allow));
    }
}
