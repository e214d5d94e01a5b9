//! The jinxes that a team knows: layers of folders, of which the upper hide the lower by name, and
//! the ways to list them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::LazyLock;

use alara_text::nearest;
use globset::{GlobBuilder, GlobMatcher};

use super::check::text_of;
use super::files::{self, Folder, JinxFile};
use super::{needs, stock};
use crate::jinx::python::{Need, describe_missing};
use crate::jinx::{Action, Jinx, Missing, Step};
use crate::skill;
use crate::types::{Diagnostic, Location, Severity};

/// One layer: the jinxes of some files.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    jinxes: BTreeMap<String, Jinx>,
    /// The names of the unusable files.
    broken: BTreeSet<String>,
}

impl Layer {
    /// Reads files.
    /// Of two jinxes with the same name, the first one wins.
    pub fn read(files: &[JinxFile], diagnostics: &mut Vec<Diagnostic>) -> Self {
        let mut layer = Layer::default();
        layer.add(files, diagnostics);
        layer
    }

    /// Marks the jinxes as built in or the user's own.
    #[must_use]
    pub fn trusted(mut self) -> Self {
        self.jinxes.values_mut().for_each(|jinx| jinx.trusted = true);
        self
    }

    /// Reads more files into the same layer.
    pub fn add(&mut self, files: &[JinxFile], diagnostics: &mut Vec<Diagnostic>) {
        for file in files {
            self.broken.insert(file.stem());
            let Some(source) = file.file.read(diagnostics) else { continue };
            let read = match file.is_skill() {
                true => skill::read(&source, &file.stem(), file.beside.clone(), diagnostics),
                false => crate::jinx::read(&source, diagnostics),
            };
            let Some(jinx) = read else {
                self.broken.extend(said_name(&source.text));
                continue;
            };
            self.broken.remove(&file.stem());
            if let Some(before) = self.jinxes.get(&jinx.name) {
                let message = format!(
                    "the jinx `{}` is described in {} too; that one counts",
                    jinx.name,
                    before.path.display()
                );
                diagnostics.push(source.error(Location::default(), message));
                continue;
            }
            let jinx = Jinx { reference: file.reference.clone(), ..jinx };
            self.jinxes.insert(jinx.name.clone(), jinx);
        }
    }

    /// Finds the jinxes that can't run here.
    /// Their programs may import modules from the folders `beside`; the first is the work
    /// directory.
    pub fn look(&mut self, beside: &[PathBuf]) {
        needs::look(self.jinxes.values_mut(), beside, &text_of);
    }

    /// Names and references, by name.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.jinxes.values().map(|jinx| (jinx.name.as_str(), jinx.reference.as_str()))
    }
}

/// All jinxes that a team knows, by name.
#[derive(Clone, Debug, Default)]
pub struct Library(BTreeMap<String, Jinx>);

impl Library {
    /// The built-in jinxes, read once.
    pub fn stock() -> &'static Library {
        &STOCK.0
    }

    /// This library with `layer` on top.
    /// A jinx that can't run here is replaced by the one below it, if that one can.
    /// An unusable file hides the jinx below it nevertheless: that one may be permitted more than
    /// the file's.
    #[must_use]
    pub fn under(&self, layer: &Layer, diagnostics: &mut Vec<Diagnostic>) -> Library {
        let mut all = self.0.clone();
        for name in layer.broken.iter().filter(|name| !layer.jinxes.contains_key(*name)) {
            all.remove(name);
        }
        for (name, jinx) in &layer.jinxes {
            let below = all.get(name).filter(|below| below.missing.is_empty() && !jinx.missing.is_empty());
            let jinx = match below {
                // Listed and permitted by the name and reference of the upper file.
                Some(below) => {
                    let what = if below.path.is_relative() { "built-in jinx" } else { "jinx below it" };
                    let message = format!(
                        "`{name}` can't run here, it needs {}; the {what} of this name is used instead",
                        describe_missing(&jinx.missing)
                    );
                    diagnostics.push(warning(jinx, message));
                    let reference = jinx.reference.clone();
                    Jinx { reference, permission: jinx.permission.or(below.permission), ..below.clone() }
                }
                None => jinx.clone(),
            };
            all.insert(name.clone(), jinx);
        }
        spread(&mut all);
        let own = layer.jinxes.iter().filter_map(|(name, jinx)| {
            let now = all.get(name)?;
            (now.path == jinx.path && !now.missing.is_empty()).then_some(now)
        });
        diagnostics.extend(own.map(cant_run));
        Library(all)
    }

    /// The jinx with this name.
    pub fn get(&self, name: &str) -> Option<&Jinx> {
        self.0.get(name)
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Names and references, by name.
    pub fn references(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.values().map(|jinx| (jinx.name.as_str(), jinx.reference.as_str()))
    }

    /// All of them, by name.
    pub(crate) fn into_jinxes(self) -> Vec<Jinx> {
        self.0.into_values().collect()
    }

    /// The jinxes that match an entry of a list.
    /// An entry is a name, a path below the folder of jinxes, or a pattern for either (`lib/*`,
    /// which also matches subfolders).
    /// Returns a remark too, if it matches none of them, or only nearly one.
    pub fn find(&self, entry: &str) -> (Vec<&Jinx>, Option<String>) {
        let entry = plain(entry);
        if let Some(jinx) = self.get(entry) {
            return (vec![jinx], None);
        }
        if is_pattern(entry) {
            let pattern = match Pattern::new(entry) {
                Ok(pattern) => pattern,
                Err(reason) => return (Vec::new(), Some(format!("`{entry}` is no pattern: {reason}"))),
            };
            let fits = |jinx: &&Jinx| pattern.fits(&jinx.name, &jinx.reference);
            let found: Vec<&Jinx> = self.0.values().filter(fits).collect();
            let remark = found.is_empty().then(|| format!("no jinx fits `{entry}`"));
            return (found, remark);
        }
        if let Some(jinx) = self.0.values().find(|jinx| jinx.reference == entry) {
            return (vec![jinx], None);
        }
        let last = entry.rsplit('/').next().unwrap_or(entry);
        if let Some(jinx) = self.get(last) {
            let taken = if jinx.reference.is_empty() { &jinx.name } else { &jinx.reference };
            return (vec![jinx], Some(format!("there is no jinx `{entry}`; `{taken}` is taken")));
        }
        let hint = nearest(last, self.names()).map(|near| format!(", did you mean `{near}`?"));
        let hint = hint.unwrap_or_default();
        (Vec::new(), Some(format!("there is no jinx `{entry}`{hint}; it is left out")))
    }
}

/// Whether an entry of a list matches a tool of this name that isn't a jinx, and so is in no
/// folder.
pub fn names(entry: &str, tool: &str) -> bool {
    let entry = plain(entry);
    match is_pattern(entry) {
        true => Pattern::new(entry).is_ok_and(|pattern| pattern.0.is_match(tool)),
        false => entry.rsplit('/').next() == Some(tool),
    }
}

/// An entry without its optional parts.
fn plain(entry: &str) -> &str {
    let entry = entry.trim().trim_start_matches("./");
    let entry = entry.strip_suffix(".jinx").unwrap_or(entry);
    ["jinxes/", "jinxs/"].iter().find_map(|root| entry.strip_prefix(root)).unwrap_or(entry)
}

fn is_pattern(entry: &str) -> bool {
    entry.contains(['*', '?', '['])
}

/// The built-in jinxes with their diagnostics.
static STOCK: LazyLock<(Library, Vec<Diagnostic>)> = LazyLock::new(|| {
    let mut diagnostics = Vec::new();
    let files = files::jinxes(&Folder::BuiltIn("jinxes", &stock::JINXES), &mut diagnostics);
    let layer = Layer::read(&files, &mut diagnostics).trusted();
    (Library::default().under(&layer, &mut diagnostics), diagnostics)
});

/// A pattern of names or paths.
pub struct Pattern(GlobMatcher);

impl Pattern {
    /// Parses a pattern, in which `*` also matches `/`.
    ///
    /// # Errors
    /// The pattern is invalid.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let glob = GlobBuilder::new(pattern).literal_separator(false).build();
        glob.map(|glob| Pattern(glob.compile_matcher())).map_err(|error| error.kind().to_string())
    }

    /// Whether a jinx matches by its name or its reference.
    pub fn fits(&self, name: &str, reference: &str) -> bool {
        self.0.is_match(name) || self.0.is_match(reference)
    }
}

/// The name in an unusable file, as far as a plain text search finds it.
fn said_name(text: &str) -> Option<String> {
    let value =
        |line: &str| Some(line.strip_prefix("jinx_name:").or(line.strip_prefix("name:"))?.trim().to_owned());
    text.lines().find_map(value).map(|name| name.trim_matches(['"', '\'']).to_owned())
}

/// The diagnostic for a jinx that can't run here.
pub(crate) fn cant_run(jinx: &Jinx) -> Diagnostic {
    let needs = describe_missing(&jinx.missing);
    warning(jinx, format!("`{}` can't run here, it needs {needs}; it is offered to no model", jinx.name))
}

/// A warning located where a jinx needs something that is missing.
fn warning(jinx: &Jinx, message: String) -> Diagnostic {
    let location = jinx.missing.first().map(|missing| missing.location).unwrap_or_default();
    Diagnostic { path: jinx.path.clone(), location, severity: Severity::Warning, message }
}

/// Marks callers of a jinx that can't run as unable to run, unless they catch its failure.
fn spread(all: &mut BTreeMap<String, Jinx>) {
    loop {
        let is_missing = |name: &str| {
            let called = all.get(name).or_else(|| all.values().find(|jinx| jinx.reference == name));
            called.is_some_and(|jinx| !jinx.missing.is_empty())
        };
        let found = all.values().filter(|jinx| jinx.missing.is_empty()).find_map(|jinx| {
            let (name, location) = calls(&jinx.steps).into_iter().find(|(name, _)| is_missing(name))?;
            let missing = Missing { kind: Need::Jinx, name: name.to_owned(), location };
            Some((jinx.name.clone(), missing))
        });
        let Some((name, missing)) = found else { return };
        all.entry(name).and_modify(|jinx| jinx.missing.push(missing));
    }
}

/// The jinxes that steps call, except for those whose failure is caught.
fn calls(steps: &[Step]) -> Vec<(&str, Location)> {
    let found = steps.iter().flat_map(|step| match &step.action {
        Action::Call { jinx, .. } => vec![(jinx.as_str(), step.location)],
        Action::When { then, otherwise, .. } => [calls(then), calls(otherwise)].concat(),
        Action::For { steps, .. } | Action::Try { finally: steps, .. } => calls(steps),
        _ => Vec::new(),
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_ones_are_in_order() {
        assert_eq!(STOCK.1, []);
    }

    #[test]
    fn entries_of_a_list() {
        let jinx = |name: &str, reference: &str| {
            let jinx = Jinx { name: name.into(), reference: reference.into(), ..Jinx::default() };
            (name.to_owned(), jinx)
        };
        let library = Library(
            [jinx("sh", "lib/core/sh"), jinx("stop", "lib/utils/stop"), jinx("git-work", "skills/git-work")]
                .into(),
        );
        let check = |entry: &str, names: &[&str], remark: Option<&str>| {
            let (found, diagnostics) = library.find(entry);
            let found: Vec<&str> = found.iter().map(|jinx| jinx.name.as_str()).collect();
            assert_eq!((found.as_slice(), diagnostics.as_deref()), (names, remark), "{entry}");
        };
        check("sh", &["sh"], None);
        check("lib/core/sh", &["sh"], None);
        check("./jinxs/lib/core/sh.jinx", &["sh"], None);
        check("*", &["git-work", "sh", "stop"], None);
        check("lib/*", &["sh", "stop"], None);
        check("git*", &["git-work"], None);
        check("lib/browser_*", &[], Some("no jinx fits `lib/browser_*`"));
        check("sys/stop", &["stop"], Some("there is no jinx `sys/stop`; `lib/utils/stop` is taken"));
        check("stpo", &[], Some("there is no jinx `stpo`, did you mean `stop`?; it is left out"));
        check("other", &[], Some("there is no jinx `other`; it is left out"));
    }

    #[test]
    fn entries_name_tools_that_are_no_jinxes() {
        let check =
            |entry: &str, tool: &str, expected| assert_eq!(names(entry, tool), expected, "{entry} {tool}");
        check("get_time", "get_time", true);
        check("get_time", "get_times", false);
        check("lib/core/get_time.jinx", "get_time", true);
        check("lib/core", "lib", false);
        check("get_*", "get_time", true);
        check("get_*", "set_time", false);
        check("lib/*", "lib", false);
        check("*", "anything", true);
        check("[", "x", false);
    }
}
