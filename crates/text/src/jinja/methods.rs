//! Python's methods of strings, lists and mappings: those that minijinja's own collection lacks, or
//! implements differently.

use minijinja::value::{Kwargs, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

use super::budget::{ITEM, charge, charge_new, failed};
use super::filters;
use super::format::{WIDEST, braces};

/// Calls a method of a value, for `Environment::set_unknown_method_callback`.
pub(super) fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let done = match value.as_str() {
        Some(text) => of_text(state, text, method, args)?,
        None => of_other(value, method, args)?,
    };
    match done {
        Some(value) => charge_new(state, value),
        None => {
            let value = pycompat::unknown_method_callback(state, value, method, args)?;
            charge_new(state, value)
        }
    }
}

/// A slice of a text in characters, and the number of characters before it.
fn part(text: &str, start: Option<i64>, end: Option<i64>) -> Option<(&str, usize)> {
    if start.is_none() && end.is_none() {
        return Some((text, 0));
    }
    let count = text.chars().count();
    let at = |index: i64| match usize::try_from(index) {
        Ok(index) => index,
        Err(_) => count.saturating_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    let (start, end) = (at(start.unwrap_or(0)), end.map_or(count, at).min(count));
    if start > end {
        return None;
    }
    let byte = |index: usize| text.char_indices().nth(index).map_or(text.len(), |(at, _)| at);
    Some((&text[byte(start)..byte(end)], start))
}

fn of_text(state: &mut State, text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let character = |fill: Option<&str>| fill.and_then(|fill| fill.chars().next()).unwrap_or(' ');
    let tuple = |parts: [&str; 3]| Value::from(Tuple::from(parts.map(Value::from).to_vec()));
    Ok(Some(match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            if separator.is_empty() {
                return Err(failed("empty separator"));
            }
            let (first, missing) = match method {
                "partition" => (text.split_once(separator), [text, "", ""]),
                _ => (text.rsplit_once(separator), ["", "", text]),
            };
            tuple(first.map_or(missing, |(before, after)| [before, separator, after]))
        }
        "split" | "rsplit" => {
            let (separator, most, options): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
            let separator = match separator {
                Some(separator) => Some(separator),
                None => options.get::<Option<&str>>("sep")?,
            };
            let most = match most {
                Some(most) => Some(most),
                None => options.get::<Option<i64>>("maxsplit")?,
            };
            options.assert_all_used()?;
            // A negative count means no limit.
            let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX - 1);
            let parts =
                split(text, separator, most, method == "rsplit").ok_or_else(|| failed("empty separator"))?;
            charge(state, parts.len().saturating_mul(ITEM))?;
            parts.into_iter().map(Value::from).collect()
        }
        "splitlines" => {
            let (keep, options): (Option<bool>, Kwargs) = from_args(args)?;
            let keep = keep.map_or_else(|| options.get::<Option<bool>>("keepends"), |keep| Ok(Some(keep)))?;
            options.assert_all_used()?;
            lines(text, keep.unwrap_or(false)).into_iter().map(Value::from).collect()
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            format!("{sign}{}{digits}", fill(text, width, '0')?).into()
        }
        "ljust" => {
            let (width, with): (usize, Option<&str>) = from_args(args)?;
            format!("{text}{}", fill(text, width, character(with))?).into()
        }
        "rjust" => {
            let (width, with): (usize, Option<&str>) = from_args(args)?;
            format!("{}{text}", fill(text, width, character(with))?).into()
        }
        "center" => {
            let (width, with): (usize, Option<&str>) = from_args(args)?;
            let with = character(with);
            let all = fill(text, width, with)?.chars().count();
            // Python's rounding for an odd number.
            let left = all / 2 + (all & width & 1);
            let side = |count: usize| String::from_iter(std::iter::repeat_n(with, count));
            format!("{}{text}{}", side(left), side(all - left)).into()
        }
        "find" | "rfind" | "index" | "rindex" | "count" | "startswith" | "endswith" => {
            let (what, start, end): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
            let range = part(text, start, end);
            if method.ends_with("with") {
                let fits = |what: &str| {
                    range.is_some_and(|(text, _)| match method {
                        "startswith" => text.starts_with(what),
                        _ => text.ends_with(what),
                    })
                };
                let wrong =
                    || failed(format!("{method} takes a text or a tuple of texts, not {}", what.kind()));
                return match (what.as_str(), what.kind()) {
                    (Some(what), _) => Ok(Some(fits(what).into())),
                    (None, ValueKind::Seq | ValueKind::Iterable) => {
                        let mut any = false;
                        for what in what.try_iter()? {
                            any |= fits(what.as_str().ok_or_else(wrong)?);
                        }
                        Ok(Some(any.into()))
                    }
                    _ => Err(wrong()),
                };
            }
            let what = what.as_str().ok_or_else(|| failed(format!("{method} takes a text")))?;
            let found = range.and_then(|(text, before)| {
                let at = if method.starts_with('r') { text.rfind(what) } else { text.find(what) };
                Some((before + text[..at?].chars().count()) as i64)
            });
            match method {
                "count" => range.map_or(0, |(text, _)| text.matches(what).count()).into(),
                "find" | "rfind" => found.unwrap_or(-1).into(),
                _ => found.ok_or_else(|| failed("substring not found"))?.into(),
            }
        }
        "replace" => {
            let (old, new, count, options): (&str, &str, Option<i64>, Kwargs) = from_args(args)?;
            let count = count.map_or_else(|| options.get::<Option<i64>>("count"), |count| Ok(Some(count)))?;
            options.assert_all_used()?;
            filters::replaced(state, text, old, new, count)?.into()
        }
        "join" => {
            let (list,): (&Value,) = from_args(args)?;
            filters::joined(state, list, text)?.into()
        }
        "format" => return braces(state, text, args).map(Some),
        "format_map" => {
            let (mapping,): (&Value,) = from_args(args)?;
            let pairs: Vec<(String, Value)> = mapping
                .try_iter()?
                .filter_map(|key| Some((key.as_str()?.to_owned(), mapping.get_item(&key).ok()?)))
                .collect();
            let arguments = [Value::from(Kwargs::from_iter(pairs))];
            return braces(state, text, &arguments).map(Some);
        }
        "expandtabs" => {
            let (size,): (Option<usize>,) = from_args(args)?;
            let size = size.unwrap_or(8);
            if size > 256 {
                return Err(failed("a tab is at most 256 characters wide"));
            }
            charge(state, text.len().saturating_add(text.matches('\t').count().saturating_mul(size)))?;
            expanded(text, size).into()
        }
        "swapcase" => {
            let () = from_args(args)?;
            let swapped = |c: char| match c.is_uppercase() {
                true => c.to_lowercase().to_string(),
                false => c.to_uppercase().to_string(),
            };
            text.chars().map(swapped).collect::<String>().into()
        }
        "casefold" => {
            let () = from_args(args)?;
            text.to_lowercase().replace('ß', "ss").into()
        }
        "title" => {
            let () = from_args(args)?;
            filters::titled(text, |_| false).into()
        }
        "istitle" => {
            let () = from_args(args)?;
            (text.chars().any(char::is_alphabetic) && filters::titled(text, |_| false) == text).into()
        }
        "isidentifier" => {
            let () = from_args(args)?;
            let first = |c: char| c.is_alphabetic() || c == '_';
            (text.starts_with(first) && text.chars().all(|c| c.is_alphanumeric() || c == '_')).into()
        }
        "isdecimal" => {
            let () = from_args(args)?;
            (!text.is_empty() && text.chars().all(|c| c.is_ascii_digit())).into()
        }
        "isprintable" => {
            let () = from_args(args)?;
            text.chars().all(|c| !c.is_control() && (c == ' ' || !c.is_whitespace())).into()
        }
        _ => return Ok(None),
    }))
}

fn of_other(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match (value.kind(), method) {
        (ValueKind::Seq | ValueKind::Iterable, "index") => {
            let (what,): (&Value,) = from_args(args)?;
            let at = value.try_iter()?.position(|item| item == *what);
            Value::from(at.ok_or_else(|| failed("the list has no such item"))?)
        }
        (ValueKind::Seq | ValueKind::Iterable, "copy") => {
            let () = from_args(args)?;
            value.try_iter()?.collect()
        }
        (ValueKind::Map, "copy") => {
            let () = from_args(args)?;
            value.clone()
        }
        // Python's sandbox forbids these since they change the value.
        (
            ValueKind::Seq,
            "append" | "extend" | "insert" | "pop" | "remove" | "sort" | "reverse" | "clear",
        )
        | (ValueKind::Map, "update" | "pop" | "popitem" | "setdefault" | "clear") => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("{method}: templates can't change the values that they are given"),
            ));
        }
        _ => return Ok(None),
    }))
}

/// The padding of a text up to a width.
fn fill(text: &str, width: usize, with: char) -> Result<String, Error> {
    if width > WIDEST {
        return Err(failed(format!("a field is at most {WIDEST} characters wide")));
    }
    Ok(std::iter::repeat_n(with, width.saturating_sub(text.chars().count())).collect())
}

/// The parts between separators, or between whitespace, with at most `most` splits, from the left
/// or the right.
/// `None` if the separator is empty.
fn split<'a>(text: &'a str, separator: Option<&str>, most: usize, from_right: bool) -> Option<Vec<&'a str>> {
    if let Some(separator) = separator {
        let parts = match (separator.is_empty(), from_right) {
            (true, _) => return None,
            (false, false) => text.splitn(most + 1, separator).collect(),
            (false, true) => reversed(text.rsplitn(most + 1, separator).collect()),
        };
        return Some(parts);
    }
    let mut parts = Vec::new();
    let mut rest = if from_right { text.trim_end() } else { text.trim_start() };
    while !rest.is_empty() {
        let cut = match from_right {
            _ if parts.len() == most => None,
            false => rest.split_once(char::is_whitespace).map(|(part, rest)| (part, rest.trim_start())),
            true => rest.rsplit_once(char::is_whitespace).map(|(rest, part)| (part, rest.trim_end())),
        };
        let (part, more) = cut.unwrap_or((if from_right { rest.trim_start() } else { rest }, ""));
        let part = if parts.len() == most && from_right { rest } else { part };
        parts.push(part);
        rest = more;
    }
    Some(if from_right { reversed(parts) } else { parts })
}

fn reversed(mut parts: Vec<&str>) -> Vec<&str> {
    parts.reverse();
    parts
}

/// The lines of a text, split at Python's line ends.
fn lines(text: &str, keep: bool) -> Vec<&str> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(is_end) {
        let length = if rest[at..].starts_with("\r\n") {
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        parts.push(if keep { &rest[..at + length] } else { &rest[..at] });
        rest = &rest[at + length..];
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

/// Replaces tabs by spaces.
fn expanded(text: &str, size: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for character in text.chars() {
        match character {
            '\t' => {
                let count = if size == 0 { 0 } else { size - column % size };
                out.extend(std::iter::repeat_n(' ', count));
                column += count;
            }
            other => {
                out.push(other);
                column = if matches!(other, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    out
}
