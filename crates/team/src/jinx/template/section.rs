//! `skill | section(name)`: a part of a skill's text.
//! A skill is `{name, description, introduction, sections: {title: text}, files}`.

use alara_text::nearest;
use minijinja::value::{Rest, Value as Dynamic};
use minijinja::{Error, ErrorKind};

/// Begins the error about a section that a skill doesn't have.
/// Whoever asked for it knows the section, but not the expression that looks it up.
pub const NO_SECTION: &str = "there is no section ";

/// The text of a section.
/// It is found by its exact title, then ignoring case, by a part of its title, or by a similar
/// title.
/// `all` is everything, `list` the titles, `meta` the skill's name and description.
/// The default is `all`.
#[expect(clippy::needless_pass_by_value, reason = "the form of a filter")]
pub(super) fn section(skill: &Dynamic, name: Rest<Option<String>>) -> Result<String, Error> {
    let text = |key: &str| skill.get_attr(key).ok().and_then(|value| value.as_str().map(str::to_owned));
    let sections = skill.get_attr("sections")?;
    let titles: Vec<String> = sections.try_iter()?.map(|title| title.to_string()).collect();
    let body = |title: &str| {
        sections.get_attr(title).map(|body| body.as_str().unwrap_or_default().trim().to_owned())
    };
    let whole = |title: &str| body(title).map(|body| format!("## {title}\n\n{body}"));
    let name = name.first().cloned().flatten().unwrap_or_default();
    let name = name.trim().trim_start_matches('#').trim();
    if let Some(title) = find(name, &titles) {
        return body(title);
    }
    match name {
        "" | "all" => {
            let introduction = text("introduction").unwrap_or_default().trim().to_owned();
            let parts = std::iter::once(Ok(introduction)).chain(titles.iter().map(|title| whole(title)));
            let parts = parts.filter(|part| !part.as_ref().is_ok_and(String::is_empty));
            Ok(parts.collect::<Result<Vec<_>, _>>()?.join("\n\n"))
        }
        "list" => Ok(titles.iter().map(|title| format!("- {title}")).collect::<Vec<_>>().join("\n")),
        "meta" => {
            let files = skill.get_attr("files").ok().and_then(|files| files.try_iter().ok());
            let files: Vec<String> = files.into_iter().flatten().map(|file| file.to_string()).collect();
            let lines = [
                ("name", text("name").unwrap_or_default()),
                ("description", text("description").unwrap_or_default()),
                ("sections", titles.join(", ")),
                ("files", files.join(", ")),
            ];
            let lines = lines.iter().filter(|(_, value)| !value.is_empty());
            Ok(lines.map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>().join("\n"))
        }
        _ => {
            let titles = titles.join(", ");
            let message = format!("{NO_SECTION}`{name}`; sections: {titles}");
            Err(Error::new(ErrorKind::InvalidOperation, message))
        }
    }
}

fn find<'a>(name: &str, titles: &'a [String]) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let by = |fits: &dyn Fn(&str) -> bool| titles.iter().map(String::as_str).find(|title| fits(title));
    if let Some(exact) = by(&|title| title == name) {
        return Some(exact);
    }
    if matches!(name, "" | "all" | "list" | "meta") {
        return None;
    }
    by(&|title| title.to_lowercase() == lower)
        .or_else(|| by(&|title| title.to_lowercase().contains(&lower)))
        .or_else(|| nearest(name, titles.iter().map(String::as_str)))
}
