//! What a model learns of its NPC before the conversation: the system prompt and the tools.

use alara_text::request::{Segment, Tool};

use crate::hidden;
use crate::jinx::{Choices, Jinx, Offer};
use crate::team::{Npc, Team};

/// The name of the segment with the team's context.
pub const CONTEXT: &str = "context";

/// The static system prompt of an NPC, in segments.
/// First come the segments that members of a team share, so that they share its KV cache too: the
/// team's context, and the texts of skills, by name.
/// Then come the catalog of skills and the directive.
pub fn system(team: &Team, npc: &Npc) -> Vec<Segment> {
    let mut segments = vec![(CONTEXT.to_owned(), team.context.clone())];
    let mut skills: Vec<&Jinx> = npc.skills.inline.iter().filter_map(|name| team.jinx(name)).collect();
    skills.sort_by(|one, other| one.name.cmp(&other.name));
    for jinx in skills {
        if let Some(skill) = &jinx.skill {
            segments.push((format!("skill:{}", jinx.name), format!("# {}\n\n{}", jinx.name, skill.text())));
        }
    }
    let mut known: Vec<&Jinx> = npc.skills.catalog.iter().filter_map(|name| team.jinx(name)).collect();
    known.sort_by(|one, other| one.name.cmp(&other.name));
    if !known.is_empty() {
        let lines: Vec<String> =
            known.iter().map(|jinx| format!("- {}: {}", jinx.name, jinx.description)).collect();
        let catalog = format!("<available_skills>\n{}\n</available_skills>", lines.join("\n"));
        segments.push(("skills".to_owned(), catalog));
    }
    segments.push(("directive".to_owned(), npc.directive.clone()));
    // An NPC that can delegate must know the other members.
    let gives_work = |jinx: &Jinx| jinx.inputs.iter().any(|input| input.choices == Choices::Members);
    if npc.jinxes.iter().filter_map(|name| team.jinx(name)).any(gives_work) {
        let members = team.members(Some(npc)).into_iter();
        let lines: Vec<String> =
            members.map(|(name, description)| format!("- {name}: {description}")).collect();
        segments.push(("members".to_owned(), format!("<members>\n{}\n</members>", lines.join("\n"))));
    }
    segments
        .into_iter()
        .map(|(name, text)| Segment { name, text: text.trim().to_owned() })
        .filter(|segment| !segment.text.is_empty())
        .collect()
}

/// The tools of an NPC, in the order of its list; hidden tools are replaced by the tools that
/// unlock and call them.
pub fn tools(team: &Team, npc: &Npc) -> Vec<Tool> {
    tools_of(team, &npc.jinxes, &offer(team, Some(npc)))
}

/// The tools of an NPC whose list consists of these `jinxes`.
pub fn tools_of(team: &Team, jinxes: &[String], offer: &Offer) -> Vec<Tool> {
    let listed = jinxes.iter().filter_map(|name| team.jinx(name));
    let (hidden, shown): (Vec<&Jinx>, Vec<&Jinx>) = listed.partition(|jinx| jinx.hidden);
    let built_in = hidden::tools().into_iter().filter(|_| !hidden.is_empty());
    shown.into_iter().map(|jinx| jinx.tool(offer)).chain(built_in).collect()
}

/// The NPCs to which an NPC may delegate, and the skills that it may look up.
/// A person may use all of them.
pub fn offer(team: &Team, npc: Option<&Npc>) -> Offer {
    let members = team.members(npc).into_iter().map(|(name, _)| name.to_owned()).collect();
    let all =
        || team.jinxes.iter().filter(|jinx| jinx.skill.is_some()).map(|jinx| jinx.name.clone()).collect();
    Offer { members, skills: npc.map_or_else(all, |npc| npc.skills.catalog.clone()) }
}
