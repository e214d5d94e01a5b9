//! The gates of a team, and the NPCs that they bind.
//!
//! A gate is a file `NAME.gate` in the team's folder; `gate: NAME` in its `.ctx` binds all NPCs of
//! the team and of its sub-teams, and in an `.npc` that NPC.
//! An NPC whose gate is unreadable does not run, since its limits are unknown.
//! This module must not know what rules mean.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alara_text::nearest;

use super::ctx::list;
use super::files::File;
use super::{Npc, Team};
use crate::gate::{self, Gate, Tools};
use crate::hidden;
use crate::jinx::Jinx;
use crate::source::Source;
use crate::types::{Diagnostic, Location, Severity};
use crate::yaml::Node;

/// The gates that can be named, and those that bind all NPCs.
#[derive(Clone, Default)]
pub struct Gates {
    named: BTreeMap<String, Named>,
    /// Those that bind all NPCs.
    pub all: Held,
}

#[derive(Clone)]
struct Named {
    source: Source,
    /// `None` if it is unusable.
    gate: Option<Arc<Gate>>,
    /// Whether it is in this team's folder.
    own: bool,
}

/// The gates of an NPC.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// A call must pass all of them.
    pub gates: Vec<Arc<Gate>>,
    /// Why it is unknown what binds the NPC: a gate is unusable, or phases are unreadable.
    pub broken: Option<Diagnostic>,
}

impl Gates {
    /// Reads the gates of a team with these jinxes, below a team with these gates.
    pub fn read(&self, files: &[File], jinxes: &[Jinx], diagnostics: &mut Vec<Diagnostic>) -> Self {
        let mut gates = self.clone();
        gates.named.values_mut().for_each(|named| named.own = false);
        for file in files {
            let source = file.read(diagnostics);
            let gate = source.as_ref().and_then(|source| gate::read(source, diagnostics)).map(|mut gate| {
                // A trace contains this path, and may be resumed in another directory.
                gate.path = file.absolute();
                gate.meet(jinxes);
                Arc::new(gate)
            });
            // An unreadable gate hides the one above nevertheless: that one may permit more.
            let source = source.unwrap_or_else(|| Source { path: file.path.clone(), text: String::new() });
            gates.named.insert(file.stem(), Named { source, gate, own: true });
        }
        gates
    }

    /// The gates that `node` names, in addition to those that bind all NPCs.
    pub fn hold(&self, source: &Source, node: &Node, diagnostics: &mut Vec<Diagnostic>) -> Held {
        let mut held = self.all.clone();
        for node in list(node) {
            let name = node.text().unwrap_or_default();
            let name = name.strip_suffix(".gate").unwrap_or(name);
            match self.named.get(name) {
                Some(Named { gate: Some(gate), .. }) => {
                    if !held.gates.iter().any(|other| other.path == gate.path) {
                        held.gates.push(Arc::clone(gate));
                    }
                }
                Some(Named { source: file, .. }) => {
                    let message = format!(
                        "the gate `{name}` can't be used, see {}: whoever it binds does not run",
                        file.path.display()
                    );
                    held.refuse(source.error(node.location, message), diagnostics);
                }
                None => {
                    // A gate's name has neither a folder nor an extension.
                    let stem = name.rsplit('/').next().and_then(|name| name.split('.').next());
                    let stem = stem.unwrap_or_default();
                    let remedy = match nearest(stem, self.named.keys().map(String::as_str)) {
                        Some(near) => format!(", did you mean `{near}`?"),
                        None if stem.is_empty() => ": it is a file NAME.gate in the team's folder".to_owned(),
                        None => format!(": it is a file {stem}.gate in the team's folder"),
                    };
                    let message =
                        format!("there is no gate {}{remedy}; whoever it binds does not run", node.value());
                    held.refuse(source.error(node.location, message), diagnostics);
                }
            }
        }
        held
    }

    /// Checks the gates of this team against its `jinxes`; an NPC bound by one that doesn't fit
    /// them does not run, in the teams below either.
    /// Warns of gates that bind no NPC.
    pub fn check(
        &self,
        jinxes: &[Jinx],
        npcs: &mut [Npc],
        below: &mut [Team],
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let mut names = BTreeSet::new();
        let mut npcs: Vec<&mut Npc> = npcs.iter_mut().collect();
        let own = npcs.len();
        gather(below, &mut npcs, &mut names);
        // The names of a server's tools are unknown before it runs.
        let served = npcs.iter().any(|npc| !npc.servers.is_empty());
        for Named { source, gate, .. } in self.named.values().filter(|named| named.own) {
            let Some(gate) = gate else { continue };
            let binds = |npc: &Npc| npc.gate.gates.iter().any(|other| Arc::ptr_eq(other, gate));
            let bound: Vec<&Npc> = npcs.iter().map(|npc| &**npc).filter(|npc| binds(npc)).collect();
            if bound.is_empty() && npcs.len() == own {
                let name = &gate.name;
                let message = format!(
                    "no NPC is bound by this gate: say `gate: {name}` in those that are, or in the .ctx for all"
                );
                diagnostics.push(source.warning(Location::default(), message));
            }
            // An NPC without a list has no tools here, and may have any of a client's.
            let lists = |npc: &&Npc| npc.entries.is_some() || !npc.jinxes.is_empty();
            let all = !served && (bound.is_empty() || bound.iter().any(lists));
            let listed = bound.iter().flat_map(|npc| npc.entries.iter().flatten());
            // A pattern means none of a client's tools.
            let listed =
                listed.filter_map(|entry| entry.rsplit('/').next().filter(|name| !name.contains('*')));
            let built_in = [hidden::UNLOCK, hidden::CALL].into_iter();
            let built_in = built_in.filter(|_| jinxes.iter().any(|jinx| jinx.hidden));
            let others = names.iter().cloned().chain(listed.chain(built_in).map(str::to_owned)).collect();
            let mut found = Vec::new();
            gate.check(source, &Tools { jinxes, others: &others, all }, &mut found);
            if let Some(wrong) = found.iter().find(|diagnostic| diagnostic.severity == Severity::Error) {
                for npc in npcs.iter_mut().filter(|npc| binds(npc)) {
                    npc.gate.broken.get_or_insert_with(|| wrong.clone());
                }
            }
            diagnostics.append(&mut found);
        }
    }
}

/// The NPCs of these teams and of those below, and the names of their jinxes.
fn gather<'t>(teams: &'t mut [Team], npcs: &mut Vec<&'t mut Npc>, names: &mut BTreeSet<String>) {
    for team in teams {
        names.extend(team.jinxes.iter().map(|jinx| jinx.name.clone()));
        npcs.extend(&mut team.npcs);
        gather(&mut team.teams, npcs, names);
    }
}

impl Held {
    /// Records why the gates of an NPC are unknown.
    pub fn refuse(&mut self, why: Diagnostic, diagnostics: &mut Vec<Diagnostic>) {
        self.broken.get_or_insert_with(|| why.clone());
        if !diagnostics.contains(&why) {
            diagnostics.push(why);
        }
    }
}
