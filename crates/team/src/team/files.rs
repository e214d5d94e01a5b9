//! The contents of a team's directory, on disk or in the binary: files by kind, and whether they
//! have changed.
//!
//! This module knows names and kinds of files, not their contents.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};

use alara_text::file;
use include_dir::{Dir, DirEntry};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::skill;
use crate::source::{Source, no_text};
use crate::types::{Diagnostic, Location, Severity, hex};

/// Folders of a team in which alara looks for no sub-team.
const OWN_FOLDERS: [&str; 4] = ["jinxes", "jinxs", "agents", "models"];

/// The files that are read from a team's folder and those below it, as patterns of paths.
pub const READ: [&str; 11] = [
    "**/*.ctx",
    "**/*.npc",
    "**/*.gate",
    "**/agents.md",
    "**/permissions.yaml",
    "**/agents/*.md",
    "**/jinxes/**",
    "**/jinxs/**",
    // A link to such a folder.
    "**/agents",
    "**/jinxes",
    "**/jinxs",
];

/// Most bytes of a file.
const FILE_BYTES: u64 = 1 << 20;

/// A file on disk or in the binary.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path; that of a built-in file is relative to the repository.
    pub path: PathBuf,
    /// The folder that its path must stay in.
    root: PathBuf,
    built_in: Option<&'static include_dir::File<'static>>,
}

impl File {
    /// A file on disk, which is read only if it is really below `root`.
    pub fn on_disk(path: PathBuf, root: PathBuf) -> Self {
        File { path, root, built_in: None }
    }

    /// Its absolute path.
    pub fn absolute(&self) -> PathBuf {
        let absolute = self.built_in.is_none().then(|| std::path::absolute(&self.path).ok()).flatten();
        absolute.unwrap_or_else(|| self.path.clone())
    }

    /// The name with its extension.
    pub fn name(&self) -> String {
        name(&self.path)
    }

    /// The name without its extension.
    pub fn stem(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Its text; `None` if it can't be read or isn't text, with an error.
    pub fn read(&self, diagnostics: &mut Vec<Diagnostic>) -> Option<Source> {
        let text = match self.built_in {
            Some(file) => file.contents_utf8().map(str::to_owned).ok_or("it is no text".to_owned()),
            None => self.text(),
        };
        match text {
            Ok(text) => Some(Source::new(self.path.clone(), text)),
            Err(reason) => {
                diagnostics.push(problem(&self.path, format!("it can't be read: {reason}")));
                None
            }
        }
    }

    /// Reads a plain file only, since a team may come from strangers: neither the target of a link
    /// to elsewhere nor a device.
    fn text(&self) -> Result<String, String> {
        let message = |error: std::io::Error| error.to_string();
        let path = self.path.canonicalize().map_err(message)?;
        if !path.starts_with(self.root.canonicalize().map_err(message)?) {
            return Err(format!("this link leads out of {}", self.root.display()));
        }
        if path.extension() != self.path.extension() {
            return Err("this link leads to a file of another kind".to_owned());
        }
        if !path.metadata().map_err(message)?.is_file() {
            return Err("it is no regular file".to_owned());
        }
        file::read_text(&path, FILE_BYTES).map_err(no_text).map_err(message)
    }

    fn has_ending(&self, ending: &str) -> bool {
        self.path.extension().is_some_and(|found| found == ending)
    }
}

/// A folder on disk or in the binary.
#[derive(Clone, Debug)]
pub enum Folder {
    /// On disk, with the folder that the paths in it must stay in.
    Disk(PathBuf, PathBuf),
    /// In the binary, below a folder of the repository.
    BuiltIn(&'static str, &'static Dir<'static>),
}

impl Folder {
    /// A folder on disk that no path in it may leave.
    pub fn root(path: PathBuf) -> Self {
        Folder::Disk(path.clone(), path)
    }

    /// Whether a link leads out of its root.
    fn leads_out(&self) -> bool {
        let Folder::Disk(path, root) = self else { return false };
        match (path.canonicalize(), root.canonicalize()) {
            (Ok(path), Ok(root)) => !path.starts_with(root),
            _ => false,
        }
    }

    /// Its path; that of a built-in folder is relative to the repository.
    pub fn path(&self) -> PathBuf {
        match self {
            Folder::Disk(path, _) => path.clone(),
            Folder::BuiltIn(root, folder) => Path::new(root).join(folder.path()),
        }
    }

    /// Its name, even if the path doesn't end in one.
    pub fn name(&self) -> String {
        let path = self.path();
        match self {
            Folder::Disk(path, _) if path.file_name().is_none() => {
                path.canonicalize().map_or_else(|_| name(path), |path| name(&path))
            }
            _ => name(&path),
        }
    }

    /// Its path, if it is on disk.
    pub fn on_disk(&self) -> Option<PathBuf> {
        match self {
            Folder::Disk(path, _) => Some(path.clone()),
            Folder::BuiltIn(..) => None,
        }
    }

    fn is_link(&self) -> bool {
        matches!(self, Folder::Disk(path, _) if path.is_symlink())
    }

    /// Its folders and files, by name, without those whose names begin with a dot.
    /// An unreadable folder counts as empty, with an error.
    pub fn contents(&self, diagnostics: &mut Vec<Diagnostic>) -> (Vec<Folder>, Vec<File>) {
        let (mut folders, mut files) = (Vec::new(), Vec::new());
        match self {
            Folder::Disk(path, root) if self.leads_out() => {
                diagnostics.push(problem(path, format!("this link leads out of {}", root.display())));
            }
            Folder::Disk(path, root) => match paths(path) {
                Ok(paths) => {
                    for path in paths.into_iter().filter(|path| !name(path).starts_with('.')) {
                        match path.is_dir() {
                            true => folders.push(Folder::Disk(path, root.clone())),
                            false => files.push(File::on_disk(path, root.clone())),
                        }
                    }
                }
                Err(error) => diagnostics.push(problem(path, format!("it can't be read: {error}"))),
            },
            Folder::BuiltIn(root, folder) => {
                for entry in folder.entries() {
                    match entry {
                        DirEntry::Dir(folder) => folders.push(Folder::BuiltIn(root, folder)),
                        DirEntry::File(file) => {
                            let path = Path::new(root).join(file.path());
                            files.push(File { path, root: PathBuf::new(), built_in: Some(file) });
                        }
                    }
                }
                folders.sort_by_key(Folder::path);
                files.sort_by(|left, right| left.path.cmp(&right.path));
            }
        }
        (folders, files)
    }
}

impl Folder {
    /// Its files, including those whose names begin with a dot.
    pub(crate) fn all_files(&self) -> Vec<File> {
        let Folder::Disk(path, root) = self else { return Vec::new() };
        let paths = paths(path).unwrap_or_default().into_iter().filter(|path| path.is_file());
        paths.map(|path| File::on_disk(path, root.clone())).collect()
    }

    /// The files at any depth; folders that are links are left out.
    pub(crate) fn files_below(&self) -> Vec<File> {
        all_files(self, &mut Vec::new())
    }
}

fn paths(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = folder.read_dir()?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

pub fn problem(path: &Path, message: String) -> Diagnostic {
    Diagnostic { path: path.to_owned(), location: Location::default(), severity: Severity::Error, message }
}

/// The file of a jinx, or a skill's `SKILL.md`.
#[derive(Clone, Debug)]
pub struct JinxFile {
    /// The file.
    pub file: File,
    /// Its path below the folder of jinxes, without the extension; for a skill, that of its folder.
    pub reference: String,
    /// The other files of a skill, relative to its folder.
    pub beside: Vec<String>,
}

impl JinxFile {
    /// Whether it belongs to a skill.
    pub(crate) fn is_skill(&self) -> bool {
        skill::is_file(&self.file.path)
    }

    /// The name of the jinx, unless the file sets another.
    pub fn stem(&self) -> String {
        name(Path::new(&self.reference))
    }
}

/// The jinxes and skills at any depth of a folder, in the order of their paths.
pub fn jinxes(root: &Folder, diagnostics: &mut Vec<Diagnostic>) -> Vec<JinxFile> {
    let mut found = Vec::new();
    add_jinxes(root, &root.path(), &mut found, diagnostics);
    found
}

/// The file of the skill, if a folder is one.
fn skill_of(files: &[File]) -> Option<&File> {
    let exact = files.iter().find(|file| file.name() == skill::FILE);
    exact.or_else(|| files.iter().find(|file| skill::is_file(&file.path)))
}

fn add_jinxes(folder: &Folder, root: &Path, found: &mut Vec<JinxFile>, diagnostics: &mut Vec<Diagnostic>) {
    let below = |path: &Path| {
        let path = path.strip_prefix(root).unwrap_or(path);
        path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
    };
    let (folders, files) = folder.contents(diagnostics);
    if let Some(file) = skill_of(&files) {
        let path = folder.path();
        let reference = if path == root { folder.name() } else { below(&path) };
        let beside = all_files(folder, diagnostics).into_iter().filter(|other| other.path != file.path);
        let beside = beside.map(|file| {
            let path = file.path.strip_prefix(&path).unwrap_or(&file.path);
            path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
        });
        found.push(JinxFile { file: file.clone(), reference, beside: beside.collect() });
        return;
    }
    for file in files.into_iter().filter(|file| file.has_ending("jinx")) {
        let reference = below(&file.path.with_extension(""));
        found.push(JinxFile { file, reference, beside: Vec::new() });
    }
    // A link to a folder could form a cycle.
    for folder in folders.into_iter().filter(|folder| !folder.is_link()) {
        add_jinxes(&folder, root, found, diagnostics);
    }
}

fn all_files(folder: &Folder, diagnostics: &mut Vec<Diagnostic>) -> Vec<File> {
    let (folders, mut files) = folder.contents(diagnostics);
    for folder in folders.iter().filter(|folder| !folder.is_link()) {
        files.extend(all_files(folder, diagnostics));
    }
    files
}

/// A team's files by kind, each kind in the order of the paths.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The team's folder.
    pub folder: Folder,
    /// `.ctx` files.
    pub ctx: Vec<File>,
    /// `.npc` files.
    pub npc: Vec<File>,
    /// `.gate` files.
    pub gates: Vec<File>,
    /// `agents.md` and `agents/*.md`.
    pub agents: Vec<File>,
    /// Files below `jinxes` and `jinxs`.
    pub jinxes: Vec<JinxFile>,
    /// `permissions.yaml`.
    pub permissions: Option<File>,
    /// The sub-teams.
    pub teams: Vec<Listing>,
}

impl Listing {
    /// Lists the files of a folder.
    /// Sub-teams are its subfolders with their own `.ctx`, `.npc` or agents.
    /// A link back to a team that contains it is refused.
    pub fn of(folder: Folder, diagnostics: &mut Vec<Diagnostic>) -> Self {
        Listing::within(folder, &mut Vec::new(), diagnostics)
    }

    fn within(folder: Folder, above: &mut Vec<PathBuf>, diagnostics: &mut Vec<Diagnostic>) -> Self {
        let (folders, files) = folder.contents(diagnostics);
        let ending = |ending| files.iter().filter(move |file: &&File| file.has_ending(ending)).cloned();
        let mut listing = Listing {
            ctx: ending("ctx").collect(),
            npc: ending("npc").collect(),
            gates: ending("gate").collect(),
            agents: files.iter().filter(|file| file.name() == "agents.md").cloned().collect(),
            jinxes: Vec::new(),
            permissions: files.iter().find(|file| file.name() == "permissions.yaml").cloned(),
            teams: Vec::new(),
            folder,
        };
        above.extend(real(&listing.folder));
        for folder in folders {
            match folder.name().as_str() {
                _ if folder.leads_out() => {
                    let own = OWN_FOLDERS.contains(&folder.name().as_str());
                    if own || is_team(&Folder::root(folder.path())) {
                        folder.contents(diagnostics);
                    }
                }
                "jinxes" | "jinxs" => {
                    misplaced(&folder, diagnostics);
                    listing.jinxes.extend(jinxes(&folder, diagnostics));
                }
                "agents" => {
                    misplaced(&folder, diagnostics);
                    let (_, files) = folder.contents(diagnostics);
                    listing.agents.extend(files.into_iter().filter(|file| file.has_ending("md")));
                }
                name if OWN_FOLDERS.contains(&name) || !is_team(&folder) => misplaced(&folder, diagnostics),
                _ if real(&folder).is_some_and(|path| above.contains(&path)) => {
                    diagnostics.push(problem(
                        &folder.path(),
                        "this link leads back to a team that it is in".to_owned(),
                    ));
                }
                _ => listing.teams.push(Listing::within(folder, above, diagnostics)),
            }
        }
        if real(&listing.folder).is_some() {
            above.pop();
        }
        listing
    }

    /// Whether nothing makes it a team.
    pub fn is_empty(&self) -> bool {
        self.ctx.is_empty() && self.npc.is_empty() && self.agents.is_empty()
    }

    fn files(&self) -> Vec<&File> {
        let kinds = [&self.ctx, &self.npc, &self.gates, &self.agents].into_iter().flatten();
        let jinxes = self.jinxes.iter().map(|jinx| &jinx.file);
        let below = self.teams.iter().flat_map(Listing::files);
        kinds.chain(jinxes).chain(&self.permissions).chain(below).collect()
    }
}

/// Reports gates in places that alara doesn't read: their author relies on them.
fn misplaced(folder: &Folder, diagnostics: &mut Vec<Diagnostic>) {
    let (_, files) = folder.contents(&mut Vec::new());
    for file in files.iter().filter(|file| file.has_ending("gate")) {
        let message = "no gate is looked for in this folder, so it binds nobody: \
                       move it beside the team's .npc files";
        diagnostics
            .push(Diagnostic { severity: Severity::Warning, ..problem(&file.path, message.to_owned()) });
    }
}

/// The real path of a folder on disk.
fn real(folder: &Folder) -> Option<PathBuf> {
    match folder {
        Folder::Disk(path, _) => path.canonicalize().ok(),
        Folder::BuiltIn(..) => None,
    }
}

/// Whether a folder is a team: it has a `.ctx`, a `.npc` or agents.
pub(crate) fn is_team(folder: &Folder) -> bool {
    let (folders, files) = folder.contents(&mut Vec::new());
    let makes = |file: &File| file.has_ending("ctx") || file.has_ending("npc") || file.name() == "agents.md";
    files.iter().any(makes) || folders.iter().any(|folder| folder.name() == "agents")
}

/// The files that a team was read from, and their state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// The team's directory.
    /// `None` if it is built in.
    team: Option<PathBuf>,
    /// The user's folder of jinxes.
    pub user: Option<PathBuf>,
    /// Folders of jinxes outside the team that it names.
    pub jinxes: Vec<PathBuf>,
    /// Files outside the team.
    pub files: Vec<PathBuf>,
    /// Paths that don't exist, but would be read if they did.
    pub absent: Vec<PathBuf>,
    state: u64,
}

impl Watch {
    /// The paths for a team in this directory.
    pub fn of(team: Option<PathBuf>) -> Self {
        Watch { team, ..Watch::default() }
    }

    /// Records the current state.
    #[must_use]
    pub fn begun(mut self) -> Self {
        self.state = self.state();
        self
    }

    /// Whether a file was added, removed or written since.
    pub fn changed(&self) -> bool {
        self.state != self.state()
    }

    /// A hash of paths, sizes and modification times.
    fn state(&self) -> u64 {
        let mut paths = self.own();
        paths.extend(self.user.iter().flat_map(|folder| below(folder)));
        paths.extend(self.absent.clone());
        let mut hasher = DefaultHasher::new();
        for path in paths {
            let found = path.metadata().ok().map(|found| (found.len(), found.modified().ok()));
            (path, found).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The files of the team, and those that it names.
    fn own(&self) -> Vec<PathBuf> {
        let mut paths = self.files.clone();
        if let Some(team) = &self.team {
            let listing = Listing::of(Folder::root(team.clone()), &mut Vec::new());
            paths.extend(listing.files().into_iter().map(|file| file.path.clone()));
        }
        paths.extend(self.jinxes.iter().flat_map(|folder| below(folder)));
        paths
    }

    /// The existing paths that it is read from: files, and folders whose contents are all read.
    pub fn places(&self) -> Vec<PathBuf> {
        let mut places = self.own();
        places.extend(self.jinxes.iter().chain(&self.user).cloned());
        let folders = places.iter().filter_map(|path| {
            let is_whole = |folder: &&Path| folder.ends_with("jinxes") || folder.ends_with("jinxs");
            path.ancestors().find(is_whole).map(Path::to_owned)
        });
        let folders: Vec<PathBuf> = folders.collect();
        places.extend(folders);
        places.sort();
        places.dedup();
        places
    }

    /// A hash of the contents and paths of the team's files, as hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        let mut hasher = Sha256::new();
        for path in self.own() {
            let relative = self.team.as_ref().and_then(|team| path.strip_prefix(team).ok()).unwrap_or(&path);
            let mut text = Vec::new();
            // An unreadable file counts as empty.
            if let Ok(file) = file::open(&path) {
                let _ = file.take(FILE_BYTES + 1).read_to_end(&mut text);
            }
            for part in [relative.as_os_str().as_encoded_bytes(), &text] {
                // With its length, so that parts can't run into each other.
                hasher.update((part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
        }
        hex(&hasher.finalize())
    }
}

/// The jinxes below a folder.
fn below(folder: &Path) -> Vec<PathBuf> {
    let files = jinxes(&Folder::root(folder.to_owned()), &mut Vec::new());
    files.into_iter().map(|jinx| jinx.file.path).collect()
}

/// Lists the files of a team on disk.
///
/// # Errors
/// The directory is not a team.
pub fn on_disk(directory: &Path, diagnostics: &mut Vec<Diagnostic>) -> Result<Listing, Error> {
    let none = || Error::NoTeam { path: directory.to_owned() };
    if !directory.is_dir() {
        return Err(none());
    }
    let listing = Listing::of(Folder::root(directory.to_owned()), diagnostics);
    // A folder that can't be read gives its own error.
    if listing.is_empty() { Err(none()) } else { Ok(listing) }
}
