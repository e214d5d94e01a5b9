//! The formats of strings as patterns.
//!
//! Each pattern matches only texts that every validator accepts for the format, but not all of
//! them.
//! Years begin at 1000; leap seconds and brackets in the hosts of URIs are excluded.
//! Sources: RFC 3339, 3986, 4122, 5321, 6901, 1123.

/// How a format constrains strings.
pub(super) enum Format {
    /// Texts must match this expression in full, and have at most this many characters.
    Known(String, Option<u64>),
    /// A format that can't be guaranteed.
    Unsupported,
    /// Not defined by JSON schema: only an annotation.
    Annotation,
}

const DATE: &str = "(?:[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])\
    |(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))\
    |(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29)";
const TIME: &str = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,6})?\
    (?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
/// Without hyphens in third and fourth position, which mark punycode.
const LABEL: &str = "[A-Za-z0-9](?:[A-Za-z0-9-]?[A-Za-z0-9])?\
    |[A-Za-z0-9][A-Za-z0-9-](?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])(?:[A-Za-z0-9-]{0,58}[A-Za-z0-9])\
    |[A-Za-z0-9][A-Za-z0-9-][A-Za-z0-9-][A-Za-z0-9]";
const LOCAL: &str = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";
const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const UUID: &str = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
const POINTER: &str = "(?:/(?:[^~/]|~[01])*)*";
const UNRESERVED: &str = "-A-Za-z0-9._~!$&'()*+,;=";

/// Looks up a format by its name in JSON schema.
pub(super) fn lookup(name: &str) -> Format {
    let pattern = match name {
        "date" => DATE.into(),
        "time" => TIME.into(),
        "date-time" => format!("{DATE}T{TIME}"),
        "duration" => duration(),
        "email" | "idn-email" => {
            return Format::Known(format!("{LOCAL}(?:[.]?{LOCAL}){{0,31}}@{}", hostname()), Some(254));
        }
        "hostname" | "idn-hostname" => return Format::Known(hostname(), Some(253)),
        "ipv4" => ipv4(),
        "ipv6" => ipv6(),
        "uuid" => UUID.into(),
        "uri" | "iri" => uri(),
        "uri-reference" | "iri-reference" | "uri-template" => format!("(?:{}|{})", uri(), relative()),
        "json-pointer" => POINTER.into(),
        "relative-json-pointer" => format!("(?:0|[1-9][0-9]{{0,8}})(?:#|{POINTER})"),
        "regex" => return Format::Unsupported,
        _ => return Format::Annotation,
    };
    Format::Known(pattern, None)
}

/// Weeks, or years to days and hours to seconds without gaps.
fn duration() -> String {
    let n = "[0-9]{1,9}";
    let date = format!("(?:{n}Y(?:{n}M(?:{n}D)?)?|{n}M(?:{n}D)?|{n}D)");
    let time = format!("T(?:{n}H(?:{n}M(?:{n}S)?)?|{n}M(?:{n}S)?|{n}S)");
    format!("P(?:{n}W|{date}(?:{time})?|{time})")
}

fn hostname() -> String {
    format!("(?:{LABEL})(?:[.](?:{LABEL}))*")
}

fn ipv4() -> String {
    format!("{OCTET}(?:[.]{OCTET}){{3}}")
}

/// In full, or with one run of zeros omitted.
fn ipv6() -> String {
    let group = "[0-9a-fA-F]{1,4}";
    let shortened = (0..=5).map(|left| {
        let right = 5 - left;
        format!("(?:{group}(?::{group}){{0,{left}}})?::(?:{group}(?::{group}){{0,{right}}})?")
    });
    let full = format!("{group}(?::{group}){{7}}");
    format!("(?:{full}|{})", shortened.collect::<Vec<_>>().join("|"))
}

/// A character of a path, or one of those in `more`.
fn character(more: &str) -> String {
    format!("(?:[{UNRESERVED}{more}]|%[0-9a-fA-F]{{2}})")
}

fn uri() -> String {
    let (host, user, segment) = (character(""), character(":"), character(":@"));
    let authority = format!("(?:{user}*@)?{host}*(?::[0-9]{{0,5}})?");
    let path = format!("(?://{authority}(?:/{segment}*)*|/?(?:{segment}+(?:/{segment}*)*)?)");
    format!("[A-Za-z][A-Za-z0-9+.-]*:{path}{}", query_and_fragment())
}

/// A reference whose first segment contains no colon.
fn relative() -> String {
    let (first, segment) = (character("@"), character(":@"));
    format!("(?:/?{first}+(?:/{segment}*)*)?{}", query_and_fragment())
}

fn query_and_fragment() -> String {
    let character = character(":@/?");
    format!("(?:[?]{character}*)?(?:#{character}*)?")
}
