//! From the tools of MCP servers to the jinxes of an NPC.
//!
//! The same tools give the same jinxes, whoever else is there: what is in a prompt's static prefix
//! must not depend on chance.

use std::time::Duration;

use serde_json::Value;

use crate::jinx::{Choices, Input, Jinx, Kind, Remote};
use crate::mcp::offer::{ListedTool, name};
use crate::mcp::{START, Server, printable, resources};
use crate::team::Team;

/// The jinxes of an NPC's servers, in the order of the servers and by the server's names for the
/// tools.
/// A name that another tool or a jinx of the team has too is written with the server's before it.
/// So is what reads its resources.
pub fn jinxes(team: &Team, servers: &[(&Server, &[ListedTool])], remarks: &mut Vec<String>) -> Vec<Jinx> {
    let wanted = |server: &Server, offer: &ListedTool| {
        server.tools.as_ref().is_none_or(|tools| tools.contains(&offer.name))
    };
    let taken: Vec<(&Server, &ListedTool)> = servers
        .iter()
        .flat_map(|(server, offers)| offers.iter().map(move |offer| (*server, offer)))
        .filter(|(server, offer)| wanted(server, offer))
        .collect();
    let is_free = |name: &str| team.jinx(name).is_none() && name != START;
    // Whose name is exactly this goes before those that only become it.
    let clashes = |offer: &ListedTool, called: &str| {
        let of = |other: &ListedTool| {
            other.name == called || (offer.name != called && name(&other.name) == called)
        };
        !is_free(called) || taken.iter().filter(|(_, other)| of(other)).count() > 1
    };
    let mut found: Vec<Jinx> = Vec::new();
    for (server, offer) in &taken {
        let mut called = name(&offer.name);
        if offer.name == resources::READ || clashes(offer, &called) {
            called = name(&format!("{}_{}", server.name, offer.name));
        }
        if !is_free(&called) || found.iter().any(|other| other.name == called) {
            let tool = printable(&offer.name);
            remarks.push(format!(
                "the tool `{tool}` of {} is left out: `{called}` is something else already; give the server another `name`",
                server.name
            ));
            continue;
        }
        found.push(jinx(server, offer, called));
    }
    found
}

fn jinx(server: &Server, offer: &ListedTool, name: String) -> Jinx {
    let required = offer.parameters["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let properties = offer.parameters["properties"].as_object();
    let inputs = properties.into_iter().flatten().map(|(name, schema)| Input {
        name: name.clone(),
        kind: Kind::named(schema["type"].as_str().unwrap_or_default()),
        description: schema["description"].as_str().unwrap_or_default().to_owned(),
        default: (!required.iter().any(|required| required == name)).then_some(Value::Null),
        choices: Choices::Any,
    });
    Jinx {
        name,
        description: offer.description.clone(),
        inputs: inputs.collect(),
        effect: offer.effect,
        network: server.network,
        timeout: server.timeout.max(Duration::from_millis(1)),
        remote: Some(Remote {
            server: server.start(),
            tool: offer.name.clone(),
            parameters: offer.parameters.clone(),
        }),
        path: server.path.clone(),
        ..Jinx::default()
    }
}
